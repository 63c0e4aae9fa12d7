-- Creates a queue table as the transport does, unless it is there; an application lock lets one
-- session do it at a time.
IF OBJECT_ID(N'{queue_literal}', 'U') IS NULL
BEGIN
    DECLARE @Answer int;
    EXEC @Answer = sp_getapplock @Resource = N'{queue_lock}', @LockMode = 'Exclusive',
        @LockOwner = 'Session', @LockTimeout = 30000;
    IF @Answer < 0 THROW 50000, N'Another session has been creating this table for too long', 1;
    BEGIN TRY
        IF OBJECT_ID(N'{queue_literal}', 'U') IS NULL
        BEGIN
            CREATE TABLE {queue} (
                Id uniqueidentifier NOT NULL,
                CorrelationId varchar(255),
                ReplyToAddress varchar(255),
                Recoverable bit NOT NULL,
                Expires datetime,
                Headers nvarchar(max) NOT NULL,
                Body varbinary(max),
                RowVersion bigint IDENTITY(1,1) NOT NULL
            );
            CREATE NONCLUSTERED INDEX [Index_RowVersion] ON {queue} ([RowVersion] ASC);
            CREATE NONCLUSTERED INDEX [Index_Expires] ON {queue} ([Expires]) INCLUDE ([Id], [RowVersion])
                WHERE [Expires] IS NOT NULL;
        END
    END TRY
    BEGIN CATCH
        EXEC sp_releaseapplock @Resource = N'{queue_lock}', @LockOwner = 'Session';
        THROW;
    END CATCH;
    EXEC sp_releaseapplock @Resource = N'{queue_lock}', @LockOwner = 'Session';
END;
