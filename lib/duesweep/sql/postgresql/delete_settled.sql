-- Deletes a bounded number of the journal rows of a settled sweep.
DELETE FROM {journal}
WHERE id IN (SELECT id FROM {journal} WHERE sweep_id = %(sweep_id)s LIMIT 500);
