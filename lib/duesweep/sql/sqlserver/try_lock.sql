-- Returns whether the session now holds this application lock; never waits.
DECLARE @Answer int;
EXEC @Answer = sp_getapplock @Resource = @lock, @LockMode = 'Exclusive', @LockOwner = 'Session',
    @LockTimeout = 0;
SELECT CASE WHEN @Answer >= 0 THEN 1 ELSE 0 END AS locked;
