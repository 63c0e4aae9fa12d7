"""`python -m duesweep` is the same as the console command `duesweep`."""

import gc
import signal
import sys

from duesweep.cli.output import open_streams
from duesweep.cli.signals import note_signals

# Imports make many objects that stay: Python's 700 would look through them hundreds of times.
_NEW_OBJECTS = 50_000


def run() -> int:
    """Run the command of `sys.argv`. Returns its exit code."""
    gc.set_threshold(_NEW_OBJECTS)
    open_streams()
    note_signals()
    from duesweep.cli.app import main  # noqa: PLC0415 - takes a third of a second

    code = main(sys.argv[1:])
    # From here on a signal may end what hangs while Python ends.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # At its end Python would look through all objects again: a tenth of a short sweep.
    gc.freeze()
    return code


if __name__ == "__main__":
    sys.exit(run())
