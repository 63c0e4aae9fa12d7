-- Appends a message to a queue table; without a time to be received it never expires. Locks the new
-- row only.
DECLARE @Nocount varchar(3) = 'OFF';
IF ((512 & @@OPTIONS) = 512) SET @Nocount = 'ON';
SET NOCOUNT ON;
DECLARE @Seconds int = @seconds, @Milliseconds int = @milliseconds;
INSERT INTO {queue} (Id, Expires, Headers, Body)
VALUES (
    @id, DATEADD(ms, @Milliseconds, DATEADD(s, @Seconds, GETUTCDATE())), @headers,
    CAST(@body AS varbinary(max))
);
IF @Nocount = 'OFF' SET NOCOUNT OFF;
