-- Returns the ledger that the source is bound to. No locks.
SELECT ledger_id FROM {bindings} WHERE source = %(source)s;
