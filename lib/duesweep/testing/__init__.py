"""What tests stand on: a store and a queue in memory, and messages like the recorded ones."""
