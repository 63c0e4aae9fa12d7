"""One sweep, for spark-submit and for Databricks.

Databricks: a Python file task with this file (source: Git or workspace), the sweep's options as its
parameters, e.g. `["--config", "/Workspace/.../duesweep.toml", "--json"]`, and duesweep's wheel with
psycopg as its libraries. The session is the cluster's, which brings Delta; install the PostgreSQL
JDBC driver (org.postgresql:postgresql) as a library where the runtime lacks it. Not tried yet.
"""

import sys

from duesweep.cli.app import main

if __name__ == "__main__":
    status = main(["sweep", *sys.argv[1:]])
    # A notebook-like host may take any SystemExit for a failure, that of 0 included.
    if status:
        sys.exit(status)
