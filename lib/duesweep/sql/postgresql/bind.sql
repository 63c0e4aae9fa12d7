-- Binds a source to a ledger unless it is bound already.
INSERT INTO {bindings} (source, ledger_id) VALUES (%(source)s, %(ledger_id)s)
ON CONFLICT (source) DO NOTHING;
