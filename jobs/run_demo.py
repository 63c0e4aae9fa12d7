"""The demonstration: `./spark-submit.sh demo`."""

import sys

from duesweep.cli.app import main

if __name__ == "__main__":
    sys.exit(main(["demo", *sys.argv[1:]]))
