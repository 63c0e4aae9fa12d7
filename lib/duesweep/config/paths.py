"""What a path without a scheme means to Spark in this process."""

import os

# Databricks takes such a path for one of its own store, Hadoop for one of its default file system.
_ELSEWHERE = ("DATABRICKS_RUNTIME_VERSION", "HADOOP_CONF_DIR", "YARN_CONF_DIR")


def paths_are_local() -> bool:
    """Whether a path without a scheme is a folder of this machine, for Spark as well."""
    return not any(os.environ.get(name) for name in _ELSEWHERE)
