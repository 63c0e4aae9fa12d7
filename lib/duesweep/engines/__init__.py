"""What runs the slices of a sweep: Spark at scale, this process for a few messages."""
