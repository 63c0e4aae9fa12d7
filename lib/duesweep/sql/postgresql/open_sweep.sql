-- Opens a sweep: its row is the fence that every batch holds.
INSERT INTO {sweeps} (sweep_id, source, lock_key, horizon, attempts_changed)
VALUES (%(sweep_id)s, %(source)s, %(lock_key)s, %(horizon)s, %(attempts_changed)s);
