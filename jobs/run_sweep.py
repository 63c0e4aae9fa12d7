"""A command of duesweep, by default `sweep`, for spark-submit and for Databricks.

On Databricks it is a Python file task (docs/databricks.md): its parameters are the command's, and
`--secret-scope SCOPE`, whose secrets become environment variables of the same names. The session is
the cluster's, which brings Delta. Not tried on Databricks itself yet.
"""

import argparse
import os
import sys

from duesweep.cli.signals import note_signals


def take_secrets(arguments: list[str]) -> list[str]:
    """The arguments without the scope, whose secrets are then in the environment."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--secret-scope")
    known, rest = parser.parse_known_args(arguments)
    if known.secret_scope is None:
        return rest
    # Databricks' own; it is there in a job.
    from databricks.sdk.runtime import (  # type: ignore[import-not-found]  # noqa: PLC0415
        dbutils,
    )

    for secret in dbutils.secrets.list(known.secret_scope):
        if secret.key.startswith("DUESWEEP_"):
            os.environ[secret.key] = dbutils.secrets.get(known.secret_scope, secret.key)
    return rest


if __name__ == "__main__":
    note_signals()
    from duesweep.cli.app import main

    given = take_secrets(sys.argv[1:])
    status = main(given if given and not given[0].startswith("-") else ["sweep", *given])
    # A notebook-like host may take any SystemExit for a failure, also SystemExit(0).
    if status:
        sys.exit(status)
