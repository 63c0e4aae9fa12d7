-- Returns the source's delayed table and the ledger that it is bound to. No locks.
SELECT delayed, ledger_id FROM {bindings} WHERE source = %(source)s;
