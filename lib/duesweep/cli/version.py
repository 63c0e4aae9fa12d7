"""`duesweep --version`."""

import platform
from importlib import metadata

import duesweep


def version_line() -> str:
    """The versions of duesweep, Python and PySpark, without loading Spark."""
    try:
        spark = f"PySpark {metadata.version('pyspark')}"
    except metadata.PackageNotFoundError:
        # spark-submit has a PySpark of its own, which is not an installed package.
        spark = "PySpark not installed"
    return f"duesweep {duesweep.__version__} (Python {platform.python_version()}, {spark})"
