-- Removes up to a batch of messages that have expired; locks their rows, skips locked ones.
DELETE TOP (@batch) FROM {queue} WITH (ROWLOCK, READPAST) WHERE Expires < GETUTCDATE();
