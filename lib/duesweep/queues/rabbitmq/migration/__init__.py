"""From the first delay ladder to the second, with the messages that wait in it."""
