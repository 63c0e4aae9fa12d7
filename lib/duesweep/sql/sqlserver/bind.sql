-- Binds a source, which is a delayed table, to a ledger, unless it is bound.
INSERT INTO {bindings} (source, delayed, ledger_id)
SELECT @source, @delayed, @ledger_id
WHERE NOT EXISTS (SELECT 1 FROM {bindings} b WITH (UPDLOCK, HOLDLOCK) WHERE b.source = @source);
