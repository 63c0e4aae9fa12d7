-- Returns how many messages the sweep has exhausted, under a lock that its slices take in turn until
-- the transaction ends.
DECLARE @Answer int;
EXEC @Answer = sp_getapplock @Resource = @lock, @LockMode = 'Exclusive', @LockOwner = 'Transaction',
    @LockTimeout = 10000;
SELECT @Answer AS answer, s.exhausted FROM {sweeps} s WHERE s.sweep_id = @sweep_id;
