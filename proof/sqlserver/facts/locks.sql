-- Locks of rows and of applications: who waits, who skips.

-- fact: Does READPAST skip rows that another session has claimed?
-- answer: 3
-- A
BEGIN TRANSACTION;
SELECT TOP (2) RowVersion FROM delayed WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE Due >= '2026' AND Due <= '2027';
-- B
SELECT COUNT(*) FROM delayed WITH (READPAST, READCOMMITTEDLOCK, UPDLOCK, ROWLOCK);

-- fact: Do two claims of the same span take different rows?
-- answer: 3; 4
-- A
BEGIN TRANSACTION;
SELECT TOP (2) RowVersion FROM delayed WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE Due >= '2026' AND Due <= '2027';
-- B
SELECT TOP (2) RowVersion FROM delayed WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE Due >= '2026' AND Due <= '2027';

-- fact: Does READPAST with READCOMMITTEDLOCK skip a row that is being removed?
-- answer: 4
-- A
BEGIN TRANSACTION;
DELETE FROM delayed WHERE RowVersion = 1;
-- B
SELECT COUNT(*) FROM delayed WITH (READPAST, READCOMMITTEDLOCK);

-- fact: Does READPAST alone skip a row that is being removed?
-- answer: 5
-- answer (no row versions): 4
-- A
BEGIN TRANSACTION;
DELETE FROM delayed WHERE RowVersion = 1;
-- B
SELECT COUNT(*) FROM delayed WITH (READPAST);

-- fact: Does a plain read see a row that is being removed?
-- answer: 5
-- answer (no row versions): error 1222 (*): statement StoreError, passing; queue DestinationError
-- A
BEGIN TRANSACTION;
DELETE FROM delayed WHERE RowVersion = 1;
-- B
SELECT COUNT(*) FROM delayed;

-- fact: Does a claim wait for another one's row without READPAST?
-- answer: error 1222 (*): statement StoreError, passing; queue DestinationError
-- A
BEGIN TRANSACTION;
SELECT RowVersion FROM delayed WITH (UPDLOCK, ROWLOCK) WHERE Due = '20260101 00:00:01';
-- B
SELECT RowVersion FROM delayed WITH (UPDLOCK, ROWLOCK) WHERE Due = '20260101 00:00:01';

-- fact: Can a session remove the rows that it has claimed, with READPAST?
-- answer: 2
-- A
BEGIN TRANSACTION;
SELECT RowVersion FROM delayed WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE Due <= '20260101 00:00:02';
-- A asks
DELETE TOP (3) FROM delayed WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK) WHERE Due <= '20260101 00:00:02';
SELECT @@ROWCOUNT;

-- fact: Does an endpoint store a message while a batch holds rows?
-- answer: 6
-- A
BEGIN TRANSACTION;
SELECT RowVersion FROM delayed WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE Due <= '2027';
-- B
INSERT INTO delayed (Headers, Body, Due) VALUES (N'{}', 0x06, '20260101 00:00:06');
-- B asks
SELECT COUNT(*) FROM delayed WITH (NOLOCK);

-- fact: Does NServiceBus's mover move the other messages while a batch holds two?
-- answer: 3
-- A
BEGIN TRANSACTION;
SELECT TOP (2) RowVersion FROM delayed WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE Due <= '2027';
-- B
WITH message AS (
    SELECT TOP (100) * FROM delayed WITH (UPDLOCK, READPAST, ROWLOCK) WHERE Due < DATEADD(year, 9, GETUTCDATE()) ORDER BY Due
)
DELETE FROM message
OUTPUT NEWID(), NULL, NULL, 1, NULL, deleted.Headers, deleted.Body
INTO queue (Id, CorrelationId, ReplyToAddress, Recoverable, Expires, Headers, Body);
-- B asks
SELECT COUNT(*) FROM queue;

-- fact: Does isolation SNAPSHOT refuse READPAST?
-- answer: error 650 (*): statement StoreError; queue DestinationError
-- M
ALTER DATABASE {database} SET ALLOW_SNAPSHOT_ISOLATION ON;
-- A asks
SET TRANSACTION ISOLATION LEVEL SNAPSHOT; SELECT COUNT(*) FROM delayed WITH (READPAST);

-- fact: Is FORCESEEK refused without an index that serves?
-- answer: error 8622 (*): statement StoreError; queue DestinationError
-- A
DROP INDEX Index_Due ON delayed;
-- A asks
SELECT COUNT(*) FROM delayed WITH (FORCESEEK) WHERE Due <= '2027';

-- fact: Can a DELETE through a table expression be forced to seek?
-- answer: 2
-- A
WITH span AS (
    SELECT TOP (3) RowVersion FROM delayed WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE Due <= '20260101 00:00:02'
)
DELETE FROM span;
SELECT @@ROWCOUNT;

-- fact: Can a DELETE that joins a list be forced to seek?
-- answer: 1
-- A
DELETE d FROM delayed d WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
JOIN OPENJSON(N'[{"due":"2026-01-01 00:00:01.0000000","key":1}]') WITH (due varchar(27) '$.due', message_key bigint '$.key') k
  ON d.Due = CAST(CONVERT(datetime2(7), k.due, 121) AS datetime) AND d.RowVersion = k.message_key;
SELECT @@ROWCOUNT;

-- fact: Can an UPDATE of the Due that joins a list be forced to seek?
-- answer: 1
-- A
UPDATE d SET Due = '2027' FROM delayed d WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
JOIN OPENJSON(N'[{"due":"2026-01-01 00:00:01.0000000","key":1}]') WITH (due varchar(27) '$.due', message_key bigint '$.key') k
  ON d.Due = CAST(CONVERT(datetime2(7), k.due, 121) AS datetime) AND d.RowVersion = k.message_key;
SELECT @@ROWCOUNT;

-- fact: Is the lock of a table escalated by a claim of 1,000 rows, and its removal?
-- answer: 0
-- A
INSERT INTO delayed (Headers, Body, Due)
SELECT TOP (5000) N'{}', 0x01, DATEADD(second, ROW_NUMBER() OVER (ORDER BY a.object_id), '20260201')
FROM sys.all_columns a CROSS JOIN sys.all_columns b;
-- A
BEGIN TRANSACTION;
SELECT TOP (1000) Headers, Body FROM delayed WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE Due >= '20260201' AND Due <= '20260201 00:16:40';
DELETE TOP (1001) FROM delayed WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK) WHERE Due >= '20260201' AND Due <= '20260201 00:16:40';
-- A asks
SELECT SUM(index_lock_promotion_count) FROM sys.dm_db_index_operational_stats(DB_ID(), OBJECT_ID(N'delayed'), NULL, NULL);

-- fact: Is the lock of a table escalated by a claim of 1,600 rows, the most that one locks?
-- answer: 0
-- A
INSERT INTO delayed (Headers, Body, Due)
SELECT TOP (5000) N'{}', 0x01, DATEADD(second, ROW_NUMBER() OVER (ORDER BY a.object_id), '20260201')
FROM sys.all_columns a CROSS JOIN sys.all_columns b;
-- A
BEGIN TRANSACTION;
SELECT TOP (1600) Headers, Body FROM delayed WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) WHERE Due >= '20260201';
-- A asks
SELECT SUM(index_lock_promotion_count) FROM sys.dm_db_index_operational_stats(DB_ID(), OBJECT_ID(N'delayed'), NULL, NULL);

-- fact: What answers sp_getapplock for a free lock?
-- answer: 0
-- A
DECLARE @Answer int; BEGIN TRANSACTION;
EXEC @Answer = sys.sp_getapplock @Resource = N'prove', @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 0;
SELECT @Answer;

-- fact: What answers sp_getapplock for a lock that another session has?
-- answer: -1
-- A
EXEC sys.sp_getapplock @Resource = N'prove', @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 0;
-- B
DECLARE @Answer int; BEGIN TRANSACTION;
EXEC @Answer = sys.sp_getapplock @Resource = N'prove', @LockMode = 'Shared', @LockOwner = 'Transaction', @LockTimeout = 0;
SELECT @Answer;

-- fact: What answers sp_getapplock without a transaction, for a lock of one?
-- answer: -999
-- A
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = N'prove', @LockMode = 'Shared', @LockOwner = 'Transaction', @LockTimeout = 0;
SELECT @Answer;

-- fact: What answers sp_getapplock to the victim of a deadlock?
-- answer: -3
-- A
SET DEADLOCK_PRIORITY HIGH;
EXEC sys.sp_getapplock @Resource = N'prove 1', @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 0;
-- B
EXEC sys.sp_getapplock @Resource = N'prove 2', @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 0;
-- A starts
EXEC sys.sp_getapplock @Resource = N'prove 2', @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 15000;
-- B asks
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = N'prove 1', @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 15000;
SELECT @Answer;

-- fact: Is the lock of a killed session free at once?
-- answer: 0*
-- A
EXEC sys.sp_getapplock @Resource = N'prove', @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 0;
-- M
KILL {A};
-- B
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = N'prove', @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 5000;
SELECT @Answer;
