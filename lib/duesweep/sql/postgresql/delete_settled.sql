-- Deletes the journal rows of a settled group.
DELETE FROM {journal} j USING {sweeps} s
WHERE s.settle_id = %(settle_id)s AND j.sweep_id = s.sweep_id;
