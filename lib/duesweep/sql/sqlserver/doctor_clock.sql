-- Returns the server's clock, in UTC.
SELECT SYSUTCDATETIME() AS now;
