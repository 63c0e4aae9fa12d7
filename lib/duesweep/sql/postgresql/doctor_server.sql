-- Returns the server's version, whether it is a replica, and this session's role. No locks.
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::integer AS version_number,
       pg_is_in_recovery() AS is_replica, current_user::text AS role;
