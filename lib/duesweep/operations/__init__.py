"""What can be done with an endpoint: a command is a function that returns a value."""
