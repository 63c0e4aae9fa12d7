-- Errors: their numbers, SQLSTATEs, and what duesweep takes them for, in a statement and in an insert into a queue.

-- fact: A table is missing.
-- answer: error 208 (42S02): statement StoreError; queue DestinationError
-- A
SELECT 1 FROM nowhere;

-- fact: A column is missing.
-- answer: error 207 (42S22): statement StoreError; queue DestinationError
-- A
SELECT nothing FROM delayed;

-- fact: A right is missing.
-- answer: error 229 (42000): statement MissingRightError; queue DestinationError
-- A
CREATE USER prove_nobody WITHOUT LOGIN;
-- A asks
EXECUTE AS USER = 'prove_nobody'; SELECT COUNT(*) FROM delayed;
-- A
REVERT; DROP USER prove_nobody;

-- fact: A CHECK constraint refuses a row.
-- answer: error 547 (23000): statement StoreError; queue RefusedMessageError
-- A
INSERT INTO audit (name) VALUES (N'never');

-- fact: A unique key is there already.
-- answer: error 2627 (23000): statement StoreError; queue RefusedMessageError
-- A
INSERT INTO audit (name) VALUES (N'once');
-- A asks
INSERT INTO audit (name) VALUES (N'once');

-- fact: A column refuses NULL.
-- answer: error 515 (23000): statement StoreError; queue RefusedMessageError
-- A
INSERT INTO audit (name) VALUES (NULL);

-- fact: A text is too long.
-- answer: error 2628 (*): statement StoreError; queue RefusedMessageError
-- answer (level 130): error 8152 (22001): statement StoreError; queue RefusedMessageError
-- A
INSERT INTO audit (name) VALUES (N'more than ten');

-- fact: A text is no number.
-- answer: error 245 (*): statement StoreError; queue RefusedMessageError
-- A
SELECT CONVERT(int, N'no number');

-- fact: Two sessions deadlock.
-- answer: error 1205 (40001): statement TransactionLostError; queue TransactionLostError
-- A
SET DEADLOCK_PRIORITY HIGH; SET LOCK_TIMEOUT 20000; BEGIN TRANSACTION;
UPDATE audit WITH (TABLOCKX) SET number = 1;
-- B
SET LOCK_TIMEOUT 20000; BEGIN TRANSACTION; UPDATE queue WITH (TABLOCKX) SET Recoverable = 1;
-- A starts
UPDATE queue WITH (TABLOCKX) SET Recoverable = 1;
-- B asks
UPDATE audit WITH (TABLOCKX) SET number = 1;

-- fact: A session was killed.
-- answer: error *: statement StoreError, passing; queue StoreError, passing
-- A
SELECT 1;
-- M
KILL {A};
-- A asks
SELECT 1;

-- fact: A database is offline when a session opens.
-- answer: error 4060 (*): statement StoreError, passing; queue StoreError, passing
-- M
ALTER DATABASE {database} SET OFFLINE WITH ROLLBACK IMMEDIATE;
-- B asks
SELECT 1;
-- M
ALTER DATABASE {database} SET ONLINE;

-- fact: A database is read-only.
-- answer: error 3906 (*): statement StoreError, passing; queue DestinationError, passing
-- M
ALTER DATABASE {database} SET READ_ONLY WITH ROLLBACK IMMEDIATE;
-- B asks
DELETE FROM queue;
-- M
ALTER DATABASE {database} SET READ_WRITE WITH ROLLBACK IMMEDIATE;

-- fact: There is no database of that name.
-- answer: error 911 (*): statement StoreError; queue DestinationError
-- A
USE no_database_of_this_name;

-- fact: A statement takes longer than its time-out.
-- answer: error none (HYT00): statement StoreError, passing; queue DestinationError
-- A within 1 s
WAITFOR DELAY '00:00:05';

-- fact: Is a transaction still open after a statement that took longer?
-- answer: 1
-- A
BEGIN TRANSACTION; INSERT INTO audit (name) VALUES (N'kept');
-- A within 1 s fails
WAITFOR DELAY '00:00:05';
-- A asks
SELECT XACT_STATE();

-- fact: Is a transaction still open after a constraint refused a row?
-- answer: 1
-- A
BEGIN TRANSACTION;
-- A fails
INSERT INTO audit (name) VALUES (N'never');
-- A asks
SELECT XACT_STATE();

-- fact: Is a transaction still open after a text that is no number?
-- answer: *
-- A
BEGIN TRANSACTION;
-- A fails
SELECT CONVERT(int, N'no number');
-- A asks
SELECT XACT_STATE();
