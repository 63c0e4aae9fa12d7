-- Returns whether the session can only read, and the database's encoding. No locks.
SELECT current_setting('transaction_read_only') = 'on' AS is_read_only,
       current_setting('server_encoding') AS encoding;
