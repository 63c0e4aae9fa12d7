-- Queue: queue tables, their messages in and out, and subscriptions.

-- fragment: from_queue_tables
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'p')
GROUP BY $1
HAVING array_agg(a.attname || ' ' || format_type(a.atttypid, NULL)) @> %(typed)s::text[]
   AND array_agg(a.attname::text) @> %(named)s::text[]

-- name: queue_tables
-- Returns all tables of the database that have the columns of a queue table, and whether a rule or a policy of
-- rows could change an INSERT.
SELECT n.nspname AS schema, c.relname AS table, bool_or(c.relhasrules OR c.relrowsecurity) AS has_rules
{{from_queue_tables: n.nspname, c.relname}};

-- name: insert_messages
-- Appends messages to a queue table whose rules and policies have to apply: COPY ignores the ones and refuses
-- the others.
INSERT INTO {queue} (id, headers, body)
SELECT m.id, m.headers, m.body
FROM unnest(%(ids)s::uuid[], %(headers)s::text[], %(bodies)s::bytea[]) AS m (id, headers, body);

-- name: lock_creation
-- Waits for an advisory lock, and holds it until this transaction ends. Its result means nothing.
SELECT pg_advisory_xact_lock(%(lock_key)s);

-- fragment: one_creates
DO $$BEGIN PERFORM pg_advisory_xact_lock(hashtextextended('duesweep/create', 0)); END$$;

-- name: create_queue
-- Creates a queue table as the transport does, unless it exists. An advisory lock, which its transaction holds, lets
-- one session at a time do so: IF NOT EXISTS alone fails when two sessions create one table at once.
{{one_creates}}
CREATE TABLE IF NOT EXISTS {queue} (
    id uuid NOT NULL PRIMARY KEY,
    expires timestamp,
    headers text NOT NULL,
    body bytea,
    seq serial NOT NULL UNIQUE
);

-- name: add_body_string
-- Adds the column that shows bodies as text, unless it exists. Rewrites the table under an
-- exclusive lock.
ALTER TABLE {queue} ADD COLUMN IF NOT EXISTS bodystring text
    GENERATED ALWAYS AS (encode(body, 'escape')) STORED;

-- name: send
-- Appends a message to a queue table. Without a time to be received, the message never expires.
INSERT INTO {queue} (id, expires, headers, body)
VALUES (
    %(id)s,
    now() AT TIME ZONE 'UTC'
        + make_interval(secs => %(seconds)s::int + %(milliseconds)s::int / 1000.0),
    %(headers)s, %(body)s
);

-- name: receive
-- Returns and removes the first unlocked message, with its expiry and the server's time. No row:
-- none. Never waits.
DELETE FROM {queue}
WHERE id = (SELECT id FROM {queue} ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, headers, body, expires, now() AT TIME ZONE 'UTC' AS utc_now;

-- name: peek
-- Returns about how many messages are unlocked, at most a batch: gaps between the first and the last number
-- count too. Locks these two rows until the transaction ends; receivers skip them.
SELECT least(coalesce(
    (SELECT seq FROM {queue} ORDER BY seq DESC LIMIT 1 FOR KEY SHARE SKIP LOCKED)
    - (SELECT seq FROM {queue} ORDER BY seq LIMIT 1 FOR KEY SHARE SKIP LOCKED) + 1, 0
), %(batch)s) AS messages;

-- name: purge
-- Removes at most a batch of messages, oldest first; skips locked rows.
DELETE FROM {queue}
WHERE id = ANY(ARRAY(SELECT id FROM {queue} ORDER BY seq LIMIT %(batch)s FOR UPDATE SKIP LOCKED));

-- name: purge_expired
-- Removes at most a batch of expired messages; skips locked rows.
DELETE FROM {queue}
WHERE id = ANY(ARRAY(
    SELECT id FROM {queue} WHERE expires < now() AT TIME ZONE 'UTC'
    LIMIT %(batch)s FOR UPDATE SKIP LOCKED
));

-- name: create_subscriptions
-- Creates the table of subscriptions as the transport does, unless it exists. An advisory lock,
-- which its transaction holds, lets one session at a time do so.
{{one_creates}}
CREATE TABLE IF NOT EXISTS {subscriptions} (
    queueaddress varchar(200) NOT NULL,
    endpoint varchar(200) NOT NULL,
    topic varchar(200) NOT NULL,
    PRIMARY KEY (endpoint, topic)
) WITH (fillfactor=100);

-- name: subscribe
-- Subscribes an endpoint to a topic, or replaces the address of its subscription.
INSERT INTO {subscriptions} (queueaddress, endpoint, topic)
VALUES (%(queue_address)s, %(endpoint)s, %(topic)s)
ON CONFLICT (endpoint, topic) DO UPDATE SET queueaddress = excluded.queueaddress;

-- name: unsubscribe
-- Removes an endpoint's subscription to a topic.
DELETE FROM {subscriptions} WHERE endpoint = %(endpoint)s AND topic = %(topic)s;

-- name: list_subscribers
-- Returns the addresses that subscribe to a topic, each once.
SELECT DISTINCT queueaddress AS queue_address FROM {subscriptions} WHERE topic = %(topic)s;
