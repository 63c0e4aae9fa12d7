-- Returns the time zone that a role's or the database's settings give to each role that writes to
-- the delayed table: its owner, and whoever may log in and insert; NULL where the server's default
-- holds. No locks.
SELECT r.rolname AS role, r.rolname = current_user AS is_sweeper, r.rolsuper AS is_superuser,
       c.relowner = r.oid AS is_owner,
       (
           SELECT substring(setting FROM position('=' IN setting) + 1)
           FROM pg_db_role_setting s CROSS JOIN LATERAL unnest(s.setconfig) AS setting
           WHERE s.setrole IN (r.oid, 0)
             AND s.setdatabase IN ((SELECT oid FROM pg_database WHERE datname = current_database()), 0)
             AND lower(split_part(setting, '=', 1)) = 'timezone'
           ORDER BY s.setrole = 0, s.setdatabase = 0
           LIMIT 1
       ) AS zone
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_roles r ON r.oid = c.relowner OR (r.rolcanlogin AND has_table_privilege(r.oid, c.oid, 'INSERT'))
WHERE n.nspname = %(schema)s AND c.relname = %(table)s;
