-- Returns whether the session has a right on a table: 1, 0, or NULL where there is no such table. For one
-- right, unlike describe_rights, so that a database that cannot read lists can answer too.
SELECT HAS_PERMS_BY_NAME(@name, 'OBJECT', @right) AS is_granted;
