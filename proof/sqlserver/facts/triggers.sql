-- Triggers on a delayed table or a queue table.

-- fact: Is @@ROWCOUNT the statement's own although a trigger writes more rows?
-- answer: 5
-- A
CREATE TRIGGER audited ON delayed AFTER DELETE AS INSERT INTO audit (name) VALUES (N'one'), (N'two'), (N'three');
-- A
DECLARE @Removed int; DELETE FROM delayed; SET @Removed = @@ROWCOUNT; SELECT @Removed;

-- fact: Is OUTPUT without INTO refused on a table with a trigger?
-- answer: error 334 (*): statement StoreError; queue DestinationError
-- A
CREATE TRIGGER audited ON delayed AFTER INSERT AS SET NOCOUNT ON;
-- A asks
INSERT INTO delayed (Headers, Due) OUTPUT inserted.RowVersion VALUES (N'{}', '20260101');

-- fact: Is OUTPUT INTO a table variable allowed there?
-- answer: 6
-- A
CREATE TRIGGER audited ON delayed AFTER INSERT AS SET NOCOUNT ON;
-- A
DECLARE @Keys TABLE (message_key bigint);
INSERT INTO delayed (Headers, Due) OUTPUT inserted.RowVersion INTO @Keys VALUES (N'{}', '20260101');
SELECT message_key FROM @Keys;

-- fact: What does a trigger that rolls back raise?
-- answer: error 3609 (*): statement StoreError; queue DestinationError
-- A
CREATE TRIGGER rolls_back ON queue AFTER INSERT AS ROLLBACK TRANSACTION;
-- A asks
INSERT INTO queue (Id, Recoverable, Headers) VALUES (NEWID(), 1, N'{}');
