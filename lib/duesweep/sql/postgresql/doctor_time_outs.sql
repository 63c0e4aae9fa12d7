-- Returns the time-outs that are set for this session, in milliseconds, and where each comes from. No locks.
SELECT name, setting::bigint AS milliseconds, source
FROM pg_settings
WHERE name IN (
    'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout',
    'idle_session_timeout', 'transaction_timeout'
)
ORDER BY name;
