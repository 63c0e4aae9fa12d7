-- Audit: what the store holds, for the comparison with the ledger. These statements read only, with
-- NOLOCK: they take no locks on rows, and wait for none. So they may miss a row that moves, and show one
-- that is not committed: whoever reads them looks again before he takes a difference for one.

-- name: stored_keys
-- Returns the keys of all messages, in no order. Reads what others have not committed yet; keeps no
-- locks.
SELECT {key_text} AS message_key FROM {delayed} m WITH (NOLOCK);

-- name: gone_counters
-- Returns the keys of retry counters whose messages are not stored any more, up to so many. Reads the
-- whole table where keys are not indexed. Reads what others have not committed yet; keeps no locks.
SELECT TOP (@most) a.message_key
FROM {attempts} a WITH (NOLOCK)
WHERE a.source = @source AND NOT EXISTS (
    SELECT 1 FROM {delayed} d WITH (NOLOCK)
    WHERE d.{key} = CONVERT({key_type}, a.message_key){collate}
)
ORDER BY a.message_key;

-- name: unsettled_work
-- Returns the sweeps and commands of a source that are not settled yet, with their starts, oldest first.
-- Keeps no locks.
SELECT LOWER(CONVERT(varchar(36), s.sweep_id)) AS sweep_id, s.started_at
FROM {sweeps} s
WHERE s.source = @source
ORDER BY s.started_at;

-- name: orphaned_journal
-- Returns the ids of sweeps and commands that have rows in the journal, and no row of their own; nobody
-- settles such rows. Reads what others have not committed yet; keeps no locks.
SELECT LOWER(CONVERT(varchar(36), j.sweep_id)) AS sweep_id
FROM (
    SELECT sweep_id FROM {journal} WITH (NOLOCK)
    UNION
    SELECT sweep_id FROM {changes} WITH (NOLOCK)
) j
WHERE NOT EXISTS (SELECT 1 FROM {sweeps} s WITH (NOLOCK) WHERE s.sweep_id = j.sweep_id);
