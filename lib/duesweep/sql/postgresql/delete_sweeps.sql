-- Deletes the sweeps of a settled group, after their journal rows.
DELETE FROM {sweeps} WHERE settle_id = %(settle_id)s;
