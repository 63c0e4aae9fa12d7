-- Adds the column in which people can read bodies, unless it is there; an application lock lets one
-- session do it at a time, and the table is locked for the moment that it takes.
DECLARE @Answer int;
EXEC @Answer = sp_getapplock @Resource = N'{queue_lock}', @LockMode = 'Exclusive',
    @LockOwner = 'Session', @LockTimeout = 30000;
IF @Answer < 0 THROW 50000, N'Another session has been changing this table for too long', 1;
BEGIN TRY
    IF COL_LENGTH(N'{queue_literal}', 'BodyString') IS NULL
        ALTER TABLE {queue} ADD BodyString AS CAST(Body AS nvarchar(max));
END TRY
BEGIN CATCH
    EXEC sp_releaseapplock @Resource = N'{queue_lock}', @LockOwner = 'Session';
    THROW;
END CATCH;
EXEC sp_releaseapplock @Resource = N'{queue_lock}', @LockOwner = 'Session';
