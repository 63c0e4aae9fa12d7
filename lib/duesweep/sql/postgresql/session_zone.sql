-- Returns the session's time zone and where it comes from.
SELECT setting AS zone, source FROM pg_settings WHERE name = 'TimeZone';
