"""All use of pika."""
