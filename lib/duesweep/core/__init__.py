"""Values and decisions: no input, no output, and nothing but the standard library."""
