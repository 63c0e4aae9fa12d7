-- Returns the first message that nobody holds, its expiry and the server's time, and removes it: locks
-- its row, skips locked ones, waits for none. No row: there is nothing to receive.
-- The update lock on the row that the subquery finds is held to the transaction's end, so nobody else
-- finds that row, and the DELETE cannot miss it.
DECLARE @Nocount varchar(3) = 'OFF';
IF ((512 & @@OPTIONS) = 512) SET @Nocount = 'ON';
SET NOCOUNT ON;
DECLARE @Now datetime = GETUTCDATE();
DELETE q
OUTPUT deleted.Id AS id, deleted.Headers AS headers, deleted.Body AS body,
    deleted.Expires AS expires, @Now AS utc_now
FROM {queue} AS q WITH (ROWLOCK)
WHERE q.RowVersion = (
    SELECT TOP (1) RowVersion FROM {queue} WITH (UPDLOCK, READPAST, ROWLOCK) ORDER BY RowVersion
);
IF @Nocount = 'OFF' SET NOCOUNT OFF;
