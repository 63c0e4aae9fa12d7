-- A whole transaction in one text with parameters, as a usual batch is one.

-- fact: Is a transaction in one text committed, without an error 266 and with the settings as before?
-- answer: 0, 0, 4
-- A
EXEC sp_executesql N'SET XACT_ABORT ON; BEGIN TRANSACTION; DELETE FROM delayed WHERE RowVersion = @key;
    IF @@ROWCOUNT <> 1 THROW 50000, N''another number'', 1; COMMIT TRANSACTION; SET XACT_ABORT OFF;',
    N'@key bigint', @key = 1;
-- A
SELECT @@TRANCOUNT, @@OPTIONS & 16384, (SELECT COUNT(*) FROM delayed);

-- fact: Does an error of its own roll it back?
-- answer: 0, 5
-- A fails
EXEC sp_executesql N'SET XACT_ABORT ON; BEGIN TRANSACTION; DELETE FROM delayed WHERE RowVersion = @key;
    IF @@ROWCOUNT <> 2 THROW 50000, N''another number'', 1; COMMIT TRANSACTION; SET XACT_ABORT OFF;',
    N'@key bigint', @key = 1;
-- A
SELECT @@TRANCOUNT, (SELECT COUNT(*) FROM delayed);

-- fact: Does a queue that refuses a row, and a table that is missing, roll it back?
-- answer: 0, 5
-- A fails
EXEC sp_executesql N'SET XACT_ABORT ON; BEGIN TRANSACTION; DELETE FROM delayed WHERE RowVersion = @key;
    INSERT INTO audit (name) VALUES (N''never''); COMMIT TRANSACTION; SET XACT_ABORT OFF;',
    N'@key bigint', @key = 1;
-- A fails
EXEC sp_executesql N'SET XACT_ABORT ON; BEGIN TRANSACTION; DELETE FROM delayed WHERE RowVersion = @key;
    INSERT INTO nowhere (name) VALUES (N''x''); COMMIT TRANSACTION; SET XACT_ABORT OFF;',
    N'@key bigint', @key = 1;
-- A
SELECT @@TRANCOUNT, (SELECT COUNT(*) FROM delayed);

-- fact: Does ROLLBACK and RETURN end it without an error?
-- answer: 0, 5
-- A
EXEC sp_executesql N'SET XACT_ABORT ON; BEGIN TRANSACTION; DELETE FROM delayed WHERE RowVersion = @key;
    IF @@ROWCOUNT = 1 BEGIN ROLLBACK TRANSACTION; SET XACT_ABORT OFF; RETURN; END; COMMIT TRANSACTION;',
    N'@key bigint', @key = 1;
-- A
SELECT @@TRANCOUNT, (SELECT COUNT(*) FROM delayed);

-- fact: Is it a part of a transaction that is open?
-- answer: 0, 5
-- A
BEGIN TRANSACTION;
-- A
EXEC sp_executesql N'SET XACT_ABORT ON; BEGIN TRANSACTION; DELETE FROM delayed WHERE RowVersion = @key;
    COMMIT TRANSACTION; SET XACT_ABORT OFF;', N'@key bigint', @key = 1;
-- A
ROLLBACK TRANSACTION;
-- A
SELECT @@TRANCOUNT, (SELECT COUNT(*) FROM delayed);
