-- Closes a sweep that await_batches has locked; no batch can commit to it any more.
UPDATE {sweeps}
SET closed_at = SYSUTCDATETIME(), abandoned = @abandoned, remaining = @remaining, reason = @reason
WHERE sweep_id = @sweep_id;
