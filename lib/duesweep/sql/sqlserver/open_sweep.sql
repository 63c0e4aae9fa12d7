-- Opens a sweep under a new id.
INSERT INTO {sweeps} (sweep_id, source, horizon, attempts_changed)
VALUES (@sweep_id, @source, CONVERT(datetime2(7), @horizon, 121), @attempts_changed);
