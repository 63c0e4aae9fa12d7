"""The doctor, its Spark session prepared as a sweep's: `./spark-submit.sh doctor`."""

import sys

from duesweep.cli.signals import note_signals

if __name__ == "__main__":
    note_signals()
    from duesweep.cli.app import main

    sys.exit(main(["doctor", *sys.argv[1:]]))
