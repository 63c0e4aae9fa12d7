-- Journals what a batch did, in the batch's own transaction.
INSERT INTO {journal} (
    sweep_id, slice, kind, dispatched, failed, body_bytes, attempts_changed, lateness_ms, outcomes
) VALUES (
    @sweep_id, @slice, 'batch', @dispatched, @failed, @body_bytes, @attempts_changed,
    CONVERT(varbinary(max), @lateness_ms), CONVERT(varbinary(max), @outcomes)
);
