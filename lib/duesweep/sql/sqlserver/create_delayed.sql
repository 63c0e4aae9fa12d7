-- Creates the delayed table as the transport does, unless it is there; an application lock lets one
-- session do it at a time.
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
                Headers nvarchar(max) NOT NULL,
                Body varbinary(max),
                Due datetime NOT NULL,
                RowVersion bigint IDENTITY(1,1) NOT NULL
            );
            CREATE NONCLUSTERED INDEX [Index_Due] ON {delayed} ([Due]);
        END
    END TRY
    BEGIN CATCH
        EXEC sp_releaseapplock @Resource = N'{delayed_lock}', @LockOwner = 'Session';
        THROW;
    END CATCH;
    EXEC sp_releaseapplock @Resource = N'{delayed_lock}', @LockOwner = 'Session';
END;
