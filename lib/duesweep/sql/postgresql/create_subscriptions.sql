-- Creates the table of subscriptions as the transport does; one session at a time, by an advisory
-- lock that its transaction holds.
SELECT pg_advisory_xact_lock(hashtextextended('duesweep/create', 0));
CREATE TABLE IF NOT EXISTS {subscriptions} (
    queueaddress varchar(200) NOT NULL,
    endpoint varchar(200) NOT NULL,
    topic varchar(200) NOT NULL,
    PRIMARY KEY (endpoint, topic)
) WITH (fillfactor=100);
