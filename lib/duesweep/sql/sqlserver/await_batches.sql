-- Returns the sweep if it is still open, locked against every batch until this transaction ends: waits
-- for those in flight; no row, too, where that takes too long.
DECLARE @Answer int;
EXEC @Answer = sp_getapplock @Resource = @lock, @LockMode = 'Exclusive', @LockOwner = 'Transaction',
    @LockTimeout = 25000;
SELECT @Answer AS answer, CASE WHEN s.closed_at IS NULL THEN 1 ELSE 0 END AS is_open
FROM {sweeps} s
WHERE s.sweep_id = @sweep_id;
