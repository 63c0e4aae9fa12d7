-- Creates the table of subscriptions as the transport does, unless it is there; an application lock
-- lets one session do it at a time.
IF OBJECT_ID(N'{subscriptions_literal}', 'U') IS NULL
BEGIN
    DECLARE @Answer int;
    EXEC @Answer = sp_getapplock @Resource = N'{subscriptions_lock}', @LockMode = 'Exclusive',
        @LockOwner = 'Session', @LockTimeout = 30000;
    IF @Answer < 0 THROW 50000, N'Another session has been creating this table for too long', 1;
    BEGIN TRY
        IF OBJECT_ID(N'{subscriptions_literal}', 'U') IS NULL
        BEGIN
            CREATE TABLE {subscriptions} (
                QueueAddress nvarchar(200) NOT NULL,
                Endpoint nvarchar(200) NOT NULL,
                Topic nvarchar(200) NOT NULL,
                PRIMARY KEY CLUSTERED (Endpoint, Topic)
            );
        END
    END TRY
    BEGIN CATCH
        EXEC sp_releaseapplock @Resource = N'{subscriptions_lock}', @LockOwner = 'Session';
        THROW;
    END CATCH;
    EXEC sp_releaseapplock @Resource = N'{subscriptions_lock}', @LockOwner = 'Session';
END;
