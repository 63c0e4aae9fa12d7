-- Removes claimed messages; their locks are held.
DELETE FROM {delayed} WHERE {id} = ANY(%(keys)s::uuid[]);
