"""The formats in which stores keep the headers of a message."""
