-- Audit: what the store holds, for the comparison with the ledger. These statements read only, and lock
-- no rows.

-- name: stored_keys
-- Returns the keys of all messages, in no order. Takes no locks on rows.
SELECT d.{id}::text AS message_key FROM {delayed} d;

-- name: gone_counters
-- Returns the keys of retry counters whose messages are not stored any more, up to so many. Takes no
-- locks on rows.
SELECT a.message_key::text AS message_key
FROM {attempts} a
WHERE a.source = %(source)s AND NOT EXISTS (SELECT FROM {delayed} d WHERE d.{id} = a.message_key)
ORDER BY a.message_key
LIMIT %(most)s;

-- name: unsettled_work
-- Returns the sweeps and commands of a source that are not settled yet, with their starts, oldest first.
-- Takes no locks on rows.
SELECT sweep_id, started_at FROM {sweeps} WHERE source = %(source)s ORDER BY started_at;

-- name: orphaned_journal
-- Returns the ids of sweeps and commands that have rows in the journal, and no row of their own; nobody
-- settles such rows. Takes no locks on rows.
SELECT j.sweep_id
FROM (SELECT sweep_id FROM {journal} UNION SELECT sweep_id FROM {changes}) j
WHERE NOT EXISTS (SELECT FROM {sweeps} s WHERE s.sweep_id = j.sweep_id)
ORDER BY j.sweep_id;
