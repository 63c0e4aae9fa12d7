"""The doctor, its Spark session prepared as a sweep's: `./spark-submit.sh doctor`."""

import sys

from duesweep.cli.app import main

if __name__ == "__main__":
    sys.exit(main(["doctor", *sys.argv[1:]]))
