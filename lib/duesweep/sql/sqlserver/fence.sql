-- Returns whether the sweep is still open, and the server's time in microseconds since 1970-01-01 UTC;
-- shares the sweep's lock until this transaction ends (closing takes it alone). An application lock,
-- which holds whatever isolation the database reads with, and which alone is waited for: the row is
-- read as it is, since another slice may count in it.
DECLARE @Answer int;
EXEC @Answer = sp_getapplock @Resource = @lock, @LockMode = 'Shared', @LockOwner = 'Transaction',
    @LockTimeout = 10000;
SELECT CASE WHEN s.closed_at IS NULL AND @Answer >= 0 THEN 1 ELSE 0 END AS is_open,
       DATEDIFF_BIG(microsecond, '19700101', SYSUTCDATETIME()) AS server_us
FROM {sweeps} s WITH (NOLOCK)
WHERE s.sweep_id = @sweep_id;
