"""One sweep, for spark-submit and for Databricks.

Databricks: a Python file task with this file (source: Git or workspace), the sweep's options as its
parameters, e.g. `["--config", "/Workspace/.../duesweep.toml", "--json"]`, and duesweep's wheel as
its library, which brings psycopg, pyodbc and, as mssql-python-odbc, Microsoft's ODBC driver (for
which the machines need unixODBC and Kerberos). The session is the cluster's, which brings Delta;
where the runtime lacks them, install the JDBC drivers of the stores (org.postgresql:postgresql,
com.microsoft.sqlserver:mssql-jdbc) as libraries. Not tried yet.
"""

import sys

from duesweep.cli.app import main

if __name__ == "__main__":
    status = main(["sweep", *sys.argv[1:]])
    # A notebook-like host may take any SystemExit for a failure, that of 0 included.
    if status:
        sys.exit(status)
