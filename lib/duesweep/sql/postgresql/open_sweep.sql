-- Opens a sweep: its row is the fence that every batch holds.
INSERT INTO {sweeps} (sweep_id, source, horizon, attempts_changed)
VALUES (%(sweep_id)s, %(source)s, %(horizon)s, %(attempts_changed)s);
