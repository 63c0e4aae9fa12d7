-- Returns whether the session may create tables in a schema: no row where there is no such schema. No locks.
SELECT has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE') AS may_create
FROM pg_namespace
WHERE nspname = %(schema)s;
