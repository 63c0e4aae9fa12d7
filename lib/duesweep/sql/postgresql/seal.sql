-- Seals closed sweeps under one settle id, once and for all.
UPDATE {sweeps}
SET settle_id = %(settle_id)s, sealed_at = clock_timestamp()
WHERE sweep_id = ANY(%(sweep_ids)s::uuid[]) AND settle_id IS NULL AND closed_at IS NOT NULL;
