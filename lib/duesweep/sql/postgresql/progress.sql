-- Returns what the batches of a sweep have done so far. No locks.
SELECT count(*) FILTER (WHERE kind = 'batch') AS batches,
       coalesce(sum(dispatched), 0)::bigint AS dispatched,
       coalesce(sum(failed), 0)::bigint + count(*) FILTER (WHERE kind = 'exhausted') AS failed
FROM {journal}
WHERE sweep_id = %(sweep_id)s;
