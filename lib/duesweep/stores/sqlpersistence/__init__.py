"""Timeouts that NServiceBus's old timeout manager kept through SQL persistence, as a store."""
