-- Returns the instant before which NServiceBus's own predicate (Due < now() AT TIME ZONE 'UTC')
-- calls a message due, and the server's time. To be run in the writers' time zone. No locks.
SELECT timezone('UTC', now())::timestamptz AS horizon, now() AS server_time;
