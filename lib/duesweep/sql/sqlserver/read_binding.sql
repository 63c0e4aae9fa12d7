-- Returns the source's delayed table and the ledger that it is bound to. No locks kept.
SELECT b.delayed, LOWER(CONVERT(varchar(36), b.ledger_id)) AS ledger_id FROM {bindings} b WHERE b.source = @source;
