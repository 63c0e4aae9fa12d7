-- Notes when a closed sweep was first settled.
UPDATE {sweeps}
SET sealed_at = SYSUTCDATETIME()
WHERE sweep_id = @sweep_id AND sealed_at IS NULL AND closed_at IS NOT NULL;
