-- Deletes the journal rows of a settled sweep.
DELETE FROM {journal} WHERE sweep_id = %(sweep_id)s;
