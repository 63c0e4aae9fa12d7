-- Raises the messages' own counters, as the MSMQ transport does; their locks are held.
UPDATE {delayed} WITH (READPAST, ROWLOCK)
SET RetryCount = RetryCount + 1
WHERE {key} IN (
    SELECT k.[value] COLLATE DATABASE_DEFAULT FROM STRING_SPLIT(CONVERT(nvarchar(max), @keys), CONVERT(nchar(1), @separator)) k
);
