-- Creates the MSMQ transport's delayed message store as its installer does, unless it is there; an
-- application lock lets one session do it at a time.
IF OBJECT_ID(N'{delayed_literal}', 'U') IS NULL
BEGIN
    DECLARE @Answer int;
    EXEC @Answer = sp_getapplock @Resource = N'{delayed_lock}', @LockMode = 'Exclusive',
        @LockOwner = 'Session', @LockTimeout = 30000;
    IF @Answer < 0 THROW 50000, N'Another session has been creating this table for too long', 1;
    BEGIN TRY
        IF OBJECT_ID(N'{delayed_literal}', 'U') IS NULL
        BEGIN
            CREATE TABLE {delayed} (
                Id nvarchar(250) NOT NULL PRIMARY KEY,
                Destination nvarchar(200),
                State varbinary(max),
                Time datetime,
                Headers varbinary(max) NOT NULL,
                RetryCount int NOT NULL DEFAULT 0
            );
            CREATE INDEX [Index_Time] ON {delayed} ([Time]);
        END
    END TRY
    BEGIN CATCH
        EXEC sp_releaseapplock @Resource = N'{delayed_lock}', @LockOwner = 'Session';
        THROW;
    END CATCH;
    EXEC sp_releaseapplock @Resource = N'{delayed_lock}', @LockOwner = 'Session';
END;
