-- Releases an application lock that the session holds.
EXEC sp_releaseapplock @Resource = @lock, @LockOwner = 'Session';
