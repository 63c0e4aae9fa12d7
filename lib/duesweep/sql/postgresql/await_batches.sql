-- Returns the sweep if it is still open, locked against every batch: waits for those in flight.
SELECT sweep_id FROM {sweeps} WHERE sweep_id = %(sweep_id)s AND closed_at IS NULL FOR UPDATE;
