-- Creates a queue table as the transport does; one session at a time, by an advisory lock that its
-- transaction holds, since IF NOT EXISTS alone fails where two create at once.
SELECT pg_advisory_xact_lock(hashtextextended('duesweep/create', 0));
CREATE TABLE IF NOT EXISTS {queue} (
    id uuid NOT NULL PRIMARY KEY,
    expires timestamp,
    headers text NOT NULL,
    body bytea,
    seq serial NOT NULL UNIQUE
);
