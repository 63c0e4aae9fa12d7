"""One handover, for spark-submit and for Databricks, as run_sweep.py is one sweep."""

import sys

from duesweep.cli.signals import note_signals

if __name__ == "__main__":
    note_signals()
    from duesweep.cli.app import main

    status = main(["handover", *sys.argv[1:]])
    # A notebook-like host may take any SystemExit for a failure, that of 0 included.
    if status:
        sys.exit(status)
