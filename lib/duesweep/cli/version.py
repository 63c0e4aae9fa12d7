"""`duesweep --version`."""

import platform
from importlib import metadata

import duesweep


def line() -> str:
    """The versions of what a sweep runs on. Loads no Spark."""
    try:
        spark = f"PySpark {metadata.version('pyspark')}"
    except metadata.PackageNotFoundError:
        # Where spark-submit brings its own, it is no installed package.
        spark = "PySpark not installed"
    return f"duesweep {duesweep.__version__} (Python {platform.python_version()}, {spark})"
