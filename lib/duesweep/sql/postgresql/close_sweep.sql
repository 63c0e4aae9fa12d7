-- Closes a sweep that await_batches has locked; no batch can commit to it any more.
UPDATE {sweeps}
SET closed_at = clock_timestamp(), abandoned = %(abandoned)s, remaining = %(remaining)s, reason = %(reason)s
WHERE sweep_id = %(sweep_id)s;
