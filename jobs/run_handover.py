"""One handover, for spark-submit and for Databricks, as run_sweep.py is one sweep."""

import sys

from duesweep.cli.app import main

if __name__ == "__main__":
    status = main(["handover", *sys.argv[1:]])
    # A notebook-like host may take any SystemExit for a failure, that of 0 included.
    if status:
        sys.exit(status)
