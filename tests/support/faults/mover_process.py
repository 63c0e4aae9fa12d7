"""NServiceBus's mover in a process of its own, to be killed. Usage: mover_process.py <dsn>
<delayed table> <queue>
"""

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.faults.mover import Mover

# Slow enough for a sweep beside it to find some messages.
_PAUSE_SECONDS = 0.15

if __name__ == "__main__":
    dsn, delayed, queue = sys.argv[1:]
    with Mover(dsn, delayed, queue, _PAUSE_SECONDS):
        signal.pause()
