"""When this run was started, which may be long before this process was."""

import os
import time

_STARTED_VARIABLE = "DUESWEEP_STARTED"
_imported = time.time()


def started() -> float:
    """Seconds since 1970-01-01 UTC: as spark-submit.sh noted them, else when this process began."""
    try:
        return float(os.environ[_STARTED_VARIABLE])
    except (KeyError, ValueError):
        return _imported
