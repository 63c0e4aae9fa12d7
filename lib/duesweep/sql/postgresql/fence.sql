-- Returns whether the sweep is still open, and the server's time in microseconds since 1970-01-01
-- UTC; holds it open until this transaction ends (closing takes FOR UPDATE). Waits for nobody but a
-- closer.
SELECT closed_at IS NULL AS is_open,
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS server_us
FROM {sweeps}
WHERE sweep_id = %(sweep_id)s
FOR KEY SHARE;
