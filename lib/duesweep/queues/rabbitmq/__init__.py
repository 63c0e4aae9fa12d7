"""Endpoints on RabbitMQ as queues: their topologies, their messages, and the delay ladder."""
