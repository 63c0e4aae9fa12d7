-- Returns a message's key if it is (still) there, locked.
SELECT d.{id}::text AS id FROM {delayed} d WHERE d.{id} = %(key)s::uuid FOR UPDATE OF d;
