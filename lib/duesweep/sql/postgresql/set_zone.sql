-- Returns the session's time zone, set for this transaction only.
SELECT set_config('TimeZone', %(zone)s, true) AS zone;
