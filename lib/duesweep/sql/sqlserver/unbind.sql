-- Frees a source from its ledger.
DELETE FROM {bindings} WHERE source = @source;
