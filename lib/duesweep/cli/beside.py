"""`python -m duesweep.cli.beside`: a command that runs only as long as the process that started it.

Its standard input is a pipe of that process, which stays empty. It ends with the process,
whatever ends that; the command then stops as by SIGTERM. Linux's PR_SET_PDEATHSIG would report the
end of a thread.
"""

import os
import signal
import sys
import threading

from duesweep.cli.signals import note_signals


def _end_with_parent() -> None:
    # Not `sys.stdin`, whose lock Python wants when it ends.
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    note_signals()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from duesweep.cli.app import main

    code = main(sys.argv[1:])
    # From here on a signal may end what hangs while Python ends.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.exit(code)
