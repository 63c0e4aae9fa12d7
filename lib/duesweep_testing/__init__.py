"""For tests: a store and a queue in memory, the contracts, and messages like recorded ones."""
