"""What the tests of RabbitMQ share: nodes, vhosts, ladders, commands."""
