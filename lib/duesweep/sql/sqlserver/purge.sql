-- Removes up to a batch of messages; locks their rows, skips locked ones.
DELETE TOP (@batch) FROM {queue} WITH (ROWLOCK, READPAST);
