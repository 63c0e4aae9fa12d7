-- Journals what a batch did, in the batch's own transaction.
INSERT INTO {journal} (
    sweep_id, slice, kind, dispatched, failed, body_bytes, attempts_changed, lateness_ms, outcomes
) VALUES (
    %(sweep_id)s, %(slice)s, 'batch', %(dispatched)s, %(failed)s, %(body_bytes)s,
    %(attempts_changed)s, %(lateness_ms)s::bigint[], %(outcomes)s
);
