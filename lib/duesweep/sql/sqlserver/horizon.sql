-- Returns the moment before which NServiceBus's own predicate (Due < GETUTCDATE()) calls a message due,
-- which is the server's time, to the tick.
SELECT CONVERT(varchar(27), CONVERT(datetime2(7), GETUTCDATE()), 121) AS horizon;
