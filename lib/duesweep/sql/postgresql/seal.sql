-- Notes when a closed sweep was first settled.
UPDATE {sweeps}
SET sealed_at = clock_timestamp()
WHERE sweep_id = %(sweep_id)s AND sealed_at IS NULL AND closed_at IS NOT NULL;
