"""The ledger: four Delta tables that people query."""
