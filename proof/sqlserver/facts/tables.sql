-- Before each fact: a delayed table and a queue table as the transport creates them, and five messages.
DROP TABLE IF EXISTS delayed, queue, audit;
CREATE TABLE delayed (
    Headers nvarchar(max) NOT NULL, Body varbinary(max), Due datetime NOT NULL,
    RowVersion bigint IDENTITY(1,1) NOT NULL
);
CREATE INDEX Index_Due ON delayed (Due) INCLUDE (RowVersion);
CREATE TABLE queue (
    Id uniqueidentifier NOT NULL, CorrelationId varchar(255), ReplyToAddress varchar(255),
    Recoverable bit NOT NULL, Expires datetime, Headers nvarchar(max) NOT NULL, Body varbinary(max),
    RowVersion bigint IDENTITY(1,1) NOT NULL
);
CREATE TABLE audit (name nvarchar(10) NOT NULL UNIQUE CHECK (name <> N'never'), number int);
INSERT INTO delayed (Headers, Body, Due) VALUES
    (N'{}', 0x01, '20260101 00:00:01'), (N'{}', 0x02, '20260101 00:00:02'), (N'{}', 0x03, '20260101 00:00:03'),
    (N'{}', 0x04, '20260101 00:00:04'), (N'{}', 0x05, '20260101 00:00:05');
