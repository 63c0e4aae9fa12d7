"""`python -m duesweep` is the same as the console command `duesweep`."""

import sys

from duesweep.cli.app import main

sys.exit(main(sys.argv[1:]))
