"""The ledger's writer in a Spark session: for catalog schemas, and wherever a session is there."""
