-- Returns whether the session now holds this application lock; waits @wait_ms milliseconds for it.
DECLARE @Answer int;
EXEC @Answer = sp_getapplock @Resource = @lock, @LockMode = 'Exclusive', @LockOwner = 'Session',
    @LockTimeout = @wait_ms;
SELECT CASE WHEN @Answer >= 0 THEN 1 ELSE 0 END AS locked;
