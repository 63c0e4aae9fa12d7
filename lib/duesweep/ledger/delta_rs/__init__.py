"""The ledger's writer without a JVM, by delta-rs: for ledgers under a path."""
