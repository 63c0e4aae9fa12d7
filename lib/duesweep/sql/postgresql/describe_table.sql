-- Returns a table's kind, owner, columns (name to type) and the rights that the session lacks on it:
-- no row where there is no such table. No locks.
SELECT c.relkind::text AS kind, pg_get_userbyid(c.relowner) AS owner,
       ARRAY(
           SELECT a.attname || ' ' || format_type(a.atttypid, NULL)
           FROM pg_attribute a
           WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
           ORDER BY a.attnum
       ) AS columns,
       ARRAY(
           SELECT wanted.privilege FROM unnest(%(rights)s::text[]) AS wanted (privilege)
           WHERE NOT has_schema_privilege(n.oid, 'USAGE') OR NOT has_table_privilege(c.oid, wanted.privilege)
       ) AS missing_rights
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(table)s;
