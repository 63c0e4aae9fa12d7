-- Adds to the sweep's count of exhausted messages; the row is locked.
UPDATE {sweeps} SET exhausted = exhausted + %(count)s WHERE sweep_id = %(sweep_id)s;
