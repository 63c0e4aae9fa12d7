-- Returns the session's time-outs in milliseconds and where they come from; and what they would be if nobody
-- had set them in the session, and for whom that is set. No locks.
SELECT s.name, s.setting::bigint AS milliseconds, s.source, s.reset_val::bigint AS default_milliseconds,
       coalesce((
           SELECT CASE
                      WHEN r.setrole <> 0 AND r.setdatabase <> 0 THEN 'this role in this database'
                      WHEN r.setrole <> 0 THEN 'this role'
                      WHEN r.setdatabase <> 0 THEN 'this database'
                      ELSE 'all roles'
                  END
           FROM pg_db_role_setting r
           WHERE r.setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = session_user))
             AND r.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
             AND EXISTS (SELECT FROM unnest(r.setconfig) AS c (text) WHERE c.text LIKE s.name || '=%%')
           ORDER BY r.setrole <> 0 DESC, r.setdatabase <> 0 DESC
           LIMIT 1
       ), 'the server or the dsn') AS origin
FROM pg_settings s
WHERE s.name IN (
    'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout',
    'idle_session_timeout', 'transaction_timeout'
)
ORDER BY s.name;
