"""The transports' own operations: queue tables, subscriptions, RabbitMQ's delay ladder.

`duesweep queue`, `subscriptions` and `rabbitmq` are its commands. For programs, `transport_of`
(`duesweep_transport.configured`) finds the queues of a configuration, its `connect` opens a
session on them, and a `Receiver` (`duesweep_transport.receiver`) passes their messages to a
function.
"""
