-- Returns about how many rows a table has, with its partitions: by statistics and size. No locks.
SELECT coalesce(sum(greatest(c.reltuples, pg_relation_size(c.oid) / 2000)), 0)::bigint AS rows
FROM pg_class t
JOIN pg_namespace n ON n.oid = t.relnamespace
CROSS JOIN LATERAL (
    SELECT t.oid UNION ALL SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = t.oid
) AS part (oid)
JOIN pg_class c ON c.oid = part.oid
WHERE n.nspname = %(schema)s AND t.relname = %(table)s;
