-- Stores a message until it is due, as the transport does. Locks the new row only.
DECLARE @Nocount varchar(3) = 'OFF';
IF ((512 & @@OPTIONS) = 512) SET @Nocount = 'ON';
SET NOCOUNT ON;
DECLARE @Due datetime = GETUTCDATE();
SET @Due = DATEADD(ms, @milliseconds, @Due);
SET @Due = DATEADD(s, @seconds, @Due);
SET @Due = DATEADD(n, @minutes, @Due);
SET @Due = DATEADD(hh, @hours, @Due);
SET @Due = DATEADD(d, @days, @Due);
INSERT INTO {delayed} (Headers, Body, Due)
VALUES (@headers, CAST(@body AS varbinary(max)), @Due);
IF @Nocount = 'OFF' SET NOCOUNT OFF;
