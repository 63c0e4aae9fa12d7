"""Parts that the tests of RabbitMQ share: nodes, vhosts, ladders, commands."""
