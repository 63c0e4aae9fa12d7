-- Returns the server's clock, and which of its processes answers.
SELECT clock_timestamp() AS now, pg_backend_pid() AS backend;
