"""Whether a delay ladder lets out again what enters it."""
