-- name: DECLARE "duesweep_look" CURSOR FOR look
-- $1 ?, $2 ?, $3 ? or timestamptz
DECLARE "duesweep_look" CURSOR FOR 
SELECT d."Id"::text AS message_key, d."Headers" AS headers, NULL::bytea AS body, d."Destination" AS destination,
       coalesce(octet_length(d."State"), 0) AS body_bytes,
       CASE WHEN isfinite(d."Time") THEN (extract(epoch FROM c.due) * 1000000)::bigint END AS due_us,
       CASE WHEN isfinite(d."Time") THEN (extract(epoch FROM i.instant) * 1000000)::bigint END AS instant_us
FROM "public"."Sales_Orders_TimeoutData" d
CROSS JOIN LATERAL (SELECT least(d."Time" AT TIME ZONE 'UTC', '290000-01-01 00:00:00+00'::timestamptz) AS due) c
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN c.due < timestamptz '4713-01-01 00:00:00+00 BC' THEN c.due
        ELSE (c.due AT TIME ZONE $1::text) AT TIME ZONE 'UTC'
    END AS instant
) i
WHERE d."Time" IS NOT NULL
  AND ($2::timestamptz IS NULL OR (
        d."Time" >= (($2::timestamptz AT TIME ZONE 'UTC' - interval '3 hours')
            AT TIME ZONE $1::text) AT TIME ZONE 'UTC'
        AND i.instant >= $2::timestamptz
      ))
  AND ($3::timestamptz IS NULL OR (
        d."Time" < (($3::timestamptz AT TIME ZONE 'UTC' + interval '3 hours')
            AT TIME ZONE $1::text) AT TIME ZONE 'UTC'
        AND i.instant < $3::timestamptz
      ))
ORDER BY d."Time";

-- name: DECLARE "duesweep_look_timeless" CURSOR FOR look_timeless
DECLARE "duesweep_look_timeless" CURSOR FOR 
SELECT d."Id"::text AS message_key, d."Headers" AS headers, NULL::bytea AS body, d."Destination" AS destination,
       coalesce(octet_length(d."State"), 0) AS body_bytes, NULL::bigint AS due_us, NULL::bigint AS instant_us
FROM "public"."Sales_Orders_TimeoutData" d
WHERE d."Time" IS NULL;

-- name: claim
-- $1 ?, $2 timestamptz, $3 uuid[], $4 timestamptz
SELECT d."Id"::text AS message_key, d."Headers" AS headers, d."State" AS body, d."Destination" AS destination,
       CASE WHEN isfinite(d."Time") THEN (extract(epoch FROM d."Time") * 1000000)::bigint END AS due_us,
       CASE WHEN isfinite(d."Time") THEN (extract(epoch FROM CASE
           WHEN d."Time" AT TIME ZONE 'UTC' < timestamptz '4713-01-01 00:00:00+00 BC' THEN d."Time" AT TIME ZONE 'UTC'
           ELSE least(
               (d."Time" AT TIME ZONE 'UTC' AT TIME ZONE $1::text) AT TIME ZONE 'UTC', $2::timestamptz
           )
       END) * 1000000)::bigint END AS instant_us
FROM "public"."Sales_Orders_TimeoutData" d
WHERE d."Id" = ANY($3::uuid[]) AND (d."Time" < $4::timestamptz AT TIME ZONE 'UTC') IS TRUE
FOR UPDATE OF d SKIP LOCKED;

-- name: count_buckets
-- $1 ?, $2 timestamptz[]
SELECT coalesce(width_bucket(d."Time", b.dues), cardinality(b.dues)) AS bucket, count(*) AS messages
FROM "public"."Sales_Orders_TimeoutData" d
CROSS JOIN (
    SELECT ARRAY(
        SELECT ((e.instant AT TIME ZONE 'UTC') AT TIME ZONE $1::text) AT TIME ZONE 'UTC'
        FROM unnest($2::timestamptz[]) AS e (instant)
        ORDER BY e.instant
    ) AS dues
) b
GROUP BY 1;

-- name: count_pending
-- $1 timestamptz, $2 ?, $3 ?, $4 ?, $5 int4
SELECT count(*) AS pending
FROM (
    SELECT
    FROM "public"."Sales_Orders_TimeoutData" d
    WHERE d."Time" < $1::timestamptz AT TIME ZONE 'UTC' AND d."Time" >= coalesce($2::timestamptz, '-infinity') AT TIME ZONE 'UTC'
      AND ($3::text = '[]' OR NOT coalesce(convert_to(d."Destination", getdatabaseencoding()), '') LIKE ANY (ARRAY(
        SELECT convert_to(p, getdatabaseencoding()) FROM jsonb_array_elements_text($3::jsonb) p
      )))
      AND NOT EXISTS (
        SELECT FROM "public"."duesweep_attempts" a
        WHERE a.source = $4 AND a.message_key = d."Id" AND a.next_attempt_at > statement_timestamp()
      )
    LIMIT $5
) eligible;

-- name: count_timeless
SELECT count(*) AS timeless FROM "public"."Sales_Orders_TimeoutData" d WHERE d."Time" IS NULL;

-- name: doctor_waiting
-- $1 int2
SELECT d."Headers" AS headers, d."Destination" AS destination
FROM "public"."Sales_Orders_TimeoutData" d
WHERE d."Time" IS NOT NULL
ORDER BY d."Time"
LIMIT $1::integer;

-- name: due_destinations
-- $1 timestamptz, $2 timestamptz, $3 ?, $4 ?
SELECT destination, count(*) AS messages
FROM (
    SELECT d."Destination" AS destination
    FROM "public"."Sales_Orders_TimeoutData" d
    WHERE d."Time" < $1::timestamptz AT TIME ZONE 'UTC' AND d."Time" >= coalesce($2::timestamptz, '-infinity') AT TIME ZONE 'UTC'
      AND d."Destination" <> ''
      AND ($3::text = '[]' OR NOT coalesce(convert_to(d."Destination", getdatabaseencoding()), '') LIKE ANY (ARRAY(
        SELECT convert_to(p, getdatabaseencoding()) FROM jsonb_array_elements_text($3::jsonb) p
      )))
      AND NOT EXISTS (
        SELECT FROM "public"."duesweep_attempts" a
        WHERE a.source = $4 AND a.message_key = d."Id" AND a.next_attempt_at > clock_timestamp()
      )
    ORDER BY d."Time"
    LIMIT 10000
) oldest
GROUP BY destination
ORDER BY messages DESC, destination
LIMIT 100;

-- name: fetch_next_due
-- $1 ?, $2 timestamptz, $3 timestamptz, $4 ?
SELECT d."Id"::text AS message_key, d."Headers" AS headers, d."State" AS body, d."Destination" AS destination,
       CASE WHEN isfinite(d."Time") THEN (extract(epoch FROM d."Time") * 1000000)::bigint END AS due_us,
       CASE WHEN isfinite(d."Time") THEN (extract(epoch FROM CASE
           WHEN d."Time" AT TIME ZONE 'UTC' < timestamptz '4713-01-01 00:00:00+00 BC' THEN d."Time" AT TIME ZONE 'UTC'
           ELSE least(
               (d."Time" AT TIME ZONE 'UTC' AT TIME ZONE $1::text) AT TIME ZONE 'UTC', $2::timestamptz
           )
       END) * 1000000)::bigint END AS instant_us
FROM "public"."Sales_Orders_TimeoutData" d
WHERE d."Time" < $3::timestamptz AT TIME ZONE 'UTC'
  AND NOT EXISTS (
    SELECT FROM "public"."duesweep_attempts" a
    WHERE a.source = $4 AND a.message_key = d."Id" AND a.next_attempt_at > clock_timestamp()
  )
ORDER BY d."Time"
LIMIT 1
FOR UPDATE OF d SKIP LOCKED;

-- name: find
-- $1 bool, $2 ?, $3 uuid[]
SELECT d."Id"::text AS message_key, d."Headers" AS headers, CASE WHEN $1 THEN d."State" END AS body,
       d."Destination" AS destination, coalesce(octet_length(d."State"), 0) AS body_bytes,
       CASE WHEN isfinite(d."Time") THEN (extract(epoch FROM c.due) * 1000000)::bigint END AS due_us,
       CASE WHEN isfinite(d."Time") THEN (extract(epoch FROM i.instant) * 1000000)::bigint END AS instant_us
FROM "public"."Sales_Orders_TimeoutData" d
CROSS JOIN LATERAL (SELECT least(d."Time" AT TIME ZONE 'UTC', '290000-01-01 00:00:00+00'::timestamptz) AS due) c
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN c.due < timestamptz '4713-01-01 00:00:00+00 BC' THEN c.due
        ELSE (c.due AT TIME ZONE $2::text) AT TIME ZONE 'UTC'
    END AS instant
) i
WHERE d."Id" = ANY($3::uuid[]);

-- name: find_gone_attempts
-- $1 ?
SELECT EXISTS (
    SELECT FROM "public"."duesweep_attempts" a
    WHERE a.source = $1 AND NOT EXISTS (SELECT FROM "public"."Sales_Orders_TimeoutData" d WHERE d."Id" = a.message_key)
) AS found;

-- name: find_pending
-- $1 timestamptz, $2 ?, $3 ?, $4 ?
SELECT CASE WHEN d."Time" AT TIME ZONE 'UTC' >= timestamptz '0001-01-02 00:00:00+00' THEN d."Time" AT TIME ZONE 'UTC' END AS due
FROM "public"."Sales_Orders_TimeoutData" d
WHERE d."Time" < $1::timestamptz AT TIME ZONE 'UTC' AND d."Time" >= coalesce($2::timestamptz, '-infinity') AT TIME ZONE 'UTC'
  AND ($3::text = '[]' OR NOT coalesce(convert_to(d."Destination", getdatabaseencoding()), '') LIKE ANY (ARRAY(
    SELECT convert_to(p, getdatabaseencoding()) FROM jsonb_array_elements_text($3::jsonb) p
  )))
  AND NOT EXISTS (
    SELECT FROM "public"."duesweep_attempts" a
    WHERE a.source = $4 AND a.message_key = d."Id" AND a.next_attempt_at > clock_timestamp()
  )
ORDER BY d."Time"
LIMIT 1;

-- name: hold
-- $1 ?, $2 uuid[]
SELECT d."Id"::text AS message_key, d."Headers" AS headers, d."State" AS body, d."Destination" AS destination,
       CASE WHEN isfinite(d."Time") THEN (extract(epoch FROM c.due) * 1000000)::bigint END AS due_us,
       CASE WHEN isfinite(d."Time") THEN (extract(epoch FROM CASE
           WHEN c.due < timestamptz '4713-01-01 00:00:00+00 BC' THEN c.due
           ELSE (c.due AT TIME ZONE $1::text) AT TIME ZONE 'UTC'
       END) * 1000000)::bigint END AS instant_us
FROM "public"."Sales_Orders_TimeoutData" d
CROSS JOIN LATERAL (SELECT least(d."Time" AT TIME ZONE 'UTC', timestamptz '290000-01-01 00:00:00+00') AS due) c
WHERE d."Id" = ANY($2::uuid[])
FOR UPDATE OF d SKIP LOCKED;

-- name: journal_cancelled
-- $1 uuid, $2 int8, $3 ?, $4 ?, $5 ?, $6 ?, $7 int8[], $8 int2[]
INSERT INTO "public"."duesweep_changes" (
    sweep_id, change, changed_us, message_key, message_id, message_type, destination, due_before_us,
    attempts, body_bytes, headers, body
)
SELECT $1, 'cancelled', $2, d."Id"::text, c.message_id, c.message_type, c.destination,
       CASE d."Time" WHEN 'infinity' THEN (extract(epoch FROM timestamptz '290000-01-01 00:00:00+00') * 1000000)::bigint
           WHEN '-infinity' THEN (extract(epoch FROM timestamptz '4713-01-01 00:00:00+00 BC') * 1000000)::bigint
           ELSE c.due_before_us END,
       c.attempts, coalesce(octet_length(d."State"), 0), d."Headers", d."State"
FROM unnest(
    $3::uuid[], $4::text[], $5::text[], $6::text[],
    $7::bigint[], $8::integer[]
) AS c (message_key, message_id, message_type, destination, due_before_us, attempts)
JOIN "public"."Sales_Orders_TimeoutData" d ON d."Id" = c.message_key;

-- name: journal_exhausted
-- $1 uuid, $2 int2, $3 ?, $4 int8[], $5 ?, $6 ?, $7 ?, $8 ?, $9 int2[], $10 ?, $11 ?, $12 ?, $13 int8, $14 ?
INSERT INTO "public"."duesweep_journal" (
    sweep_id, slice, kind, message_key, message_id, message_type, destination, queue, due,
    dispatched_at, attempts, first_failed_at, error_class, error_text, stack, headers, body
)
SELECT $1, $2, 'exhausted', d."Id", e.message_id, e.message_type, e.destination, e.queue,
       timestamptz 'epoch' + (e.instant_us / 1000000) * interval '1 second'
           + mod(e.instant_us, 1000000) * interval '1 microsecond',
       w.dispatched_at, e.attempts,
       coalesce(a.first_failed_at, w.dispatched_at), e.error_class, e.error_text, e.stack,
       d."Headers", d."State"
FROM unnest(
    $3::uuid[], $4::bigint[], $5::text[], $6::text[],
    $7::text[], $8::text[], $9::integer[], $10::text[],
    $11::text[], $12::text[]
) AS e (
    message_key, instant_us, message_id, message_type, destination, queue, attempts, error_class, error_text,
    stack
)
CROSS JOIN (
    SELECT timestamptz 'epoch' + $13::bigint * interval '1 microsecond' AS dispatched_at
) w
JOIN "public"."Sales_Orders_TimeoutData" d ON d."Id" = e.message_key
LEFT JOIN "public"."duesweep_attempts" a ON a.source = $14 AND a.message_key = e.message_key;

-- name: lock_any
SELECT d."Id"::text AS id FROM "public"."Sales_Orders_TimeoutData" d LIMIT 1 FOR UPDATE OF d SKIP LOCKED;

-- name: locked_rows
-- $1 timestamptz
SELECT count(*) AS messages, min(d.due) AS due,
       CASE WHEN p.gid IS NULL
            THEN format('session %s%s of role %s', l.pid, ' (' || nullif(a.application_name, '') || ')', a.usename)
            ELSE format('prepared transaction %L of role %s', p.gid, p.owner)
       END AS holder,
       coalesce(a.xact_start, p.prepared) AS since
FROM (
    SELECT d.xmax AS changer, d."Time" AT TIME ZONE 'UTC' AS due
    FROM "public"."Sales_Orders_TimeoutData" d
    WHERE d."Time" < $1::timestamptz AT TIME ZONE 'UTC'
    ORDER BY d."Time"
    LIMIT 10000
) d
JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = d.changer AND l.mode = 'ExclusiveLock'
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid AND l.pid IS NULL
WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
GROUP BY l.pid, a.application_name, p.gid, a.usename, p.owner, a.xact_start, p.prepared
ORDER BY messages DESC;

-- name: move_from_places
-- $1 tid[], $2 timestamptz, $3 ?, $4 ?, $5 ?, $6 timestamptz, $7 bytea, $8 ?, $9 int8
WITH moved AS MATERIALIZED (
    DELETE FROM "public"."Sales_Orders_TimeoutData" d
    WHERE d.ctid = ANY($1::tid[]) AND (d."Time" < $2::timestamptz AT TIME ZONE 'UTC') IS TRUE
      AND coalesce(d."Destination", '') = $3::text
    RETURNING d."Id" AS id, d."State" AS body, octet_length(d."Headers") AS header_bytes,
        split_part(d."Headers", $4::text, 1) AS headers,
        CASE WHEN isfinite(d."Time") THEN (extract(epoch FROM CASE
            WHEN d."Time" AT TIME ZONE 'UTC' < timestamptz '4713-01-01 00:00:00+00 BC' THEN d."Time" AT TIME ZONE 'UTC'
            ELSE least(
                (d."Time" AT TIME ZONE 'UTC' AT TIME ZONE $5::text) AT TIME ZONE 'UTC', $6::timestamptz
            )
        END) * 1000000)::bigint END AS instant_us
), arrived AS (
    INSERT INTO "public"."Billing" (id, headers, body)
    SELECT encode($7::bytea || int8send(uuid_hash_extended(m.id, 0)), 'hex')::uuid,
           m.headers || $8::text, m.body
    FROM moved m
    ORDER BY m.instant_us
    RETURNING 1
)
SELECT count(*) AS messages, (SELECT count(*) FROM arrived) AS arrived,
       bool_and(octet_length(m.headers) + octet_length($4::text) = m.header_bytes) AS have_one_destination,
       string_agg(m.id::text, ',') AS keys,
       string_agg(m.headers, E'\x1f') AS headers,
       string_agg(int8send(coalesce(m.instant_us, $9::bigint)), '') AS instants_us,
       string_agg(int8send(coalesce(octet_length(m.body), 0)), '') AS body_bytes
FROM moved m;

-- name: read_instants
-- $1 ?, $2 uuid[]
SELECT d."Id"::text AS message_key,
       (extract(epoch FROM (d."Time" AT TIME ZONE 'UTC' AT TIME ZONE $1::text) AT TIME ZONE 'UTC') * 1000000)::bigint
           AS instant_us
FROM "public"."Sales_Orders_TimeoutData" d
WHERE d."Id" = ANY($2::uuid[]);

-- name: read_slice with plan_claim_keys
SELECT claim_keys, sizes, total, forwards FROM (
SELECT s.slice, chunk.claim_keys, chunk.sizes, chunk.total, chunk.forwards, chunk.chunk
FROM (VALUES (0, '<instant>'::timestamp, '(0,0)'::tid, 'infinity'::timestamp, '(4294967295,65535)'::tid, false)) AS s (slice, first_due, first_place, end_due, end_place, by_place)
LEFT JOIN LATERAL (
    SELECT string_agg(k.id::text || CASE WHEN k.is_part THEN '' ELSE encode(tidsend(k.place), 'hex') END,
                      ',' ORDER BY k.position) AS claim_keys,
           string_agg(k.bytes::text, ',' ORDER BY k.position) AS sizes,
           string_agg(replace(k.forward, E'\x1f', ''), E'\x1f' ORDER BY k.position) AS forwards,
           (sum(count(*)) OVER ())::bigint AS total,
           k.position / '1000'::bigint AS chunk
    FROM (
        SELECT pending.*,
               row_number() OVER (ORDER BY pending.due, pending.place) - 1 AS position
        FROM (
            SELECT planned.*
            FROM (
                SELECT d."Time" AS due, d.ctid AS place, d."Id" AS id, coalesce(d."Destination", '') AS forward,
                       d.tableoid IN (SELECT inhrelid FROM pg_inherits) AS is_part,
                       coalesce(octet_length(d."Headers"), 0)::bigint + coalesce(octet_length(d."State"), 0) AS bytes
                FROM "public"."Sales_Orders_TimeoutData" d
                WHERE NOT s.by_place AND d."Time" < '<instant>'::timestamptz AT TIME ZONE 'UTC'
                  AND (d."Time", d.ctid) >= (s.first_due, s.first_place)
                  AND (d."Time", d.ctid) < (s.end_due, s.end_place)
                  AND ( E'["Shipping", "Shipping@%", "\\"Shipping\\"", "\\"public\\".\\"Shipping\\""]'::text = '[]' OR NOT coalesce(convert_to(d."Destination", getdatabaseencoding()), '') LIKE ANY (ARRAY(
                    SELECT convert_to(p, getdatabaseencoding()) FROM jsonb_array_elements_text( E'["Shipping", "Shipping@%", "\\"Shipping\\"", "\\"public\\".\\"Shipping\\""]'::jsonb) p
                  )))
                UNION ALL
                SELECT d."Time" AS due, d.ctid AS place, d."Id" AS id, coalesce(d."Destination", '') AS forward,
                       d.tableoid IN (SELECT inhrelid FROM pg_inherits) AS is_part,
                       coalesce(octet_length(d."Headers"), 0)::bigint + coalesce(octet_length(d."State"), 0) AS bytes
                FROM "public"."Sales_Orders_TimeoutData" d
                WHERE s.by_place AND d."Time" IS NOT DISTINCT FROM s.first_due
                  AND d.ctid >= s.first_place AND d.ctid < s.end_place
                  AND ( E'["Shipping", "Shipping@%", "\\"Shipping\\"", "\\"public\\".\\"Shipping\\""]'::text = '[]' OR NOT coalesce(convert_to(d."Destination", getdatabaseencoding()), '') LIKE ANY (ARRAY(
                    SELECT convert_to(p, getdatabaseencoding()) FROM jsonb_array_elements_text( E'["Shipping", "Shipping@%", "\\"Shipping\\"", "\\"public\\".\\"Shipping\\""]'::jsonb) p
                  )))
            ) planned
            WHERE NOT EXISTS (
                SELECT FROM "public"."duesweep_attempts" a
                WHERE a.source = 'nsb/Sales.Orders.Delayed' AND a.message_key = planned.id
                  AND a.next_attempt_at > statement_timestamp()
            )
            LIMIT '2000000'::bigint
        ) pending
    ) k
    GROUP BY k.position / '1000'::bigint
) chunk ON true
) AS due_messages WHERE slice = 0 ORDER BY chunk;

-- name: remove
-- $1 uuid[]
DELETE FROM "public"."Sales_Orders_TimeoutData" WHERE "Id" = ANY($1::uuid[]);

-- name: reschedule
-- $1 ?, $2 uuid[], $3 timestamptz[]
UPDATE "public"."Sales_Orders_TimeoutData" d
SET "Time" = ((n.due AT TIME ZONE 'UTC') AT TIME ZONE $1::text) AT TIME ZONE 'UTC'
FROM unnest($2::uuid[], $3::timestamptz[]) AS n (message_key, due)
WHERE d."Id" = n.message_key
RETURNING d."Id"::text AS message_key,
          (extract(epoch FROM (d."Time" AT TIME ZONE 'UTC' AT TIME ZONE $1::text) AT TIME ZONE 'UTC') * 1000000)::bigint
              AS instant_us;

-- name: store_timeout
-- $1 ?, $2 ?, $3 ?, $4 bytea, $5 timestamptz, $6 ?, $7 ?
INSERT INTO "public"."Sales_Orders_TimeoutData" (
    "Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion"
)
VALUES (
    $1::uuid, $2, $3::uuid, $4,
    $5::timestamptz AT TIME ZONE 'UTC', $6, $7
);

-- name: stored_destinations
SELECT d."Destination" AS destination, count(*) AS messages
FROM "public"."Sales_Orders_TimeoutData" d
WHERE d."Destination" <> '' AND d."Time" IS NOT NULL
GROUP BY 1
ORDER BY messages DESC, destination
LIMIT 1000;

-- name: upcoming
-- $1 ?, $2 timestamptz, $3 ?
SELECT (
    SELECT CASE WHEN earliest.due IS NOT NULL THEN
               (least(greatest(earliest.due, '0001-01-03 00:00:00+00'), '9999-12-29 00:00:00+00')
                   AT TIME ZONE $1::text) AT TIME ZONE 'UTC'
           END
    FROM (
        SELECT min(d."Time") AT TIME ZONE 'UTC' AS due
        FROM "public"."Sales_Orders_TimeoutData" d
        WHERE d."Time" >= coalesce($2::timestamptz, '-infinity') AT TIME ZONE 'UTC' AND isfinite(d."Time")
    ) earliest
) AS due, count(*) AS messages, min(a.next_attempt_at) AS next_attempt
FROM "public"."duesweep_attempts" a JOIN "public"."Sales_Orders_TimeoutData" d ON d."Id" = a.message_key
WHERE a.source = $3 AND a.next_attempt_at > clock_timestamp() AND d."Time" < coalesce($2::timestamptz, '-infinity') AT TIME ZONE 'UTC';
