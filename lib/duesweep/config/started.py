"""When this run was started, which may be long before this process started."""

import os
import time

_STARTED_VARIABLE = "DUESWEEP_STARTED"
_imported = time.time()


def started() -> float:
    """Seconds since 1970-01-01 UTC: from spark-submit.sh, else the start of this process."""
    try:
        return float(os.environ[_STARTED_VARIABLE])
    except (KeyError, ValueError):
        return _imported
