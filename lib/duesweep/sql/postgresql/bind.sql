-- Binds a source, which is a delayed table, to a ledger.
INSERT INTO {bindings} (source, delayed, ledger_id) VALUES (%(source)s, %(delayed)s, %(ledger_id)s)
ON CONFLICT (source) DO NOTHING;
