#!/bin/bash
# Init script of a cluster that reads SQL Server: unixODBC, Kerberos, and Microsoft's driver, on each machine.
set -euo pipefail
apt-get update --quiet
DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends libodbc2 libgssapi-krb5-2
/databricks/python/bin/pip install --quiet --no-deps "mssql-python-odbc==18.6.*"
