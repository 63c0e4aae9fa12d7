-- Returns whether the sweep is still open, and the server's time; holds it open until this
-- transaction ends (closing takes FOR UPDATE). Waits for nobody but a closer.
SELECT closed_at IS NULL AS is_open, clock_timestamp() AS server_time
FROM {sweeps}
WHERE sweep_id = %(sweep_id)s
FOR KEY SHARE;
