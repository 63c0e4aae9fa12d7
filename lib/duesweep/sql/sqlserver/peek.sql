-- Returns how many messages nobody holds, up to a batch. Locks a row for the moment that it takes to
-- read it, also under snapshots, and skips locked ones.
SELECT COUNT(*) AS messages
FROM (
    SELECT TOP (@batch) RowVersion FROM {queue} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
) AS Waiting;
