"""What commands do, as functions of Python that return values (docs/python.md)."""
