-- Notes how many messages each slice was planned with.
UPDATE {sweeps} SET planned = %(planned)s WHERE sweep_id = %(sweep_id)s AND closed_at IS NULL;
