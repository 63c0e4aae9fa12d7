-- Returns all tables of the database that have the columns of a queue table. No locks.
SELECT n.nspname AS schema, c.relname AS table
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'p')
GROUP BY n.nspname, c.relname
HAVING array_agg(a.attname || ' ' || format_type(a.atttypid, NULL)) @> %(typed)s::text[]
   AND array_agg(a.attname::text) @> %(named)s::text[];
