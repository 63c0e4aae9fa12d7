-- Creates what duesweep keeps beside the store: which ledger a source is bound to, the sweeps that
-- are not settled yet, what their batches did, and the retry counters.
CREATE TABLE IF NOT EXISTS {bindings} (
    source text PRIMARY KEY,
    delayed text NOT NULL,
    ledger_id uuid NOT NULL,
    bound_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS {sweeps} (
    sweep_id uuid PRIMARY KEY,
    source text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    horizon timestamptz NOT NULL,
    planned bigint[] NOT NULL DEFAULT ARRAY[]::bigint[],
    exhausted bigint NOT NULL DEFAULT 0,
    over_limit bigint NOT NULL DEFAULT 0,
    attempts_changed boolean NOT NULL DEFAULT false,
    closed_at timestamptz,
    abandoned boolean NOT NULL DEFAULT false,
    remaining bigint NOT NULL DEFAULT 0,
    reason text,
    sealed_at timestamptz
);
CREATE INDEX IF NOT EXISTS duesweep_sweeps_source ON {sweeps} (source);
CREATE TABLE IF NOT EXISTS {journal} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sweep_id uuid NOT NULL,
    slice integer NOT NULL,
    kind text NOT NULL CHECK (kind IN ('batch', 'exhausted', 'slice')),
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- kind 'batch': what was delivered, and how many were not
    dispatched integer,
    failed integer,
    body_bytes bigint,
    attempts_changed boolean,
    lateness_ms bigint[],
    outcomes bytea,
    -- kind 'slice': its end, and what became of the keys that its task was given
    given bigint,
    claimed bigint,
    skipped bigint,
    gone bigint,
    later bigint,
    "left" bigint,
    reason text,
    -- kind 'exhausted': the whole message
    message_key uuid,
    message_id text,
    message_type text,
    destination text,
    queue text,
    due timestamptz,
    dispatched_at timestamptz,
    attempts integer,
    first_failed_at timestamptz,
    error_class text,
    error_text text,
    stack text,
    headers text,
    body bytea
);
CREATE INDEX IF NOT EXISTS duesweep_journal_sweep ON {journal} (sweep_id, kind);
CREATE TABLE IF NOT EXISTS {attempts} (
    source text NOT NULL,
    message_key uuid NOT NULL,
    message_id text,
    destination text,
    attempts integer NOT NULL,
    first_failed_at timestamptz NOT NULL,
    last_failed_at timestamptz NOT NULL,
    next_attempt_at timestamptz NOT NULL,
    error_class text NOT NULL,
    error_text text NOT NULL,
    PRIMARY KEY (source, message_key)
);
-- What tables of an earlier version lack.
ALTER TABLE {sweeps} ADD COLUMN IF NOT EXISTS reason text;
ALTER TABLE {journal}
    ADD COLUMN IF NOT EXISTS given bigint,
    ADD COLUMN IF NOT EXISTS claimed bigint,
    ADD COLUMN IF NOT EXISTS skipped bigint,
    ADD COLUMN IF NOT EXISTS gone bigint,
    ADD COLUMN IF NOT EXISTS later bigint,
    ADD COLUMN IF NOT EXISTS "left" bigint;
