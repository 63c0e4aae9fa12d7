"""In the place of the package that brings a Java: it brings none."""
