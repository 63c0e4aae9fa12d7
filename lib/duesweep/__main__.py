"""`python -m duesweep` is the same as the console command `duesweep`."""

import signal
import sys

from duesweep.cli.signals import note_signals


def run() -> int:
    """Run the command of `sys.argv`. Returns its exit code."""
    note_signals()
    from duesweep.cli.app import main  # noqa: PLC0415 - takes a third of a second

    code = main(sys.argv[1:])
    # From here on a signal may end what hangs while Python ends.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return code


if __name__ == "__main__":
    sys.exit(run())
