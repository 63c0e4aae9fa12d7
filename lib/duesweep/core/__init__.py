"""Values and decisions, without I/O. They import the standard library only."""
