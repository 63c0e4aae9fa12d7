"""The jars of a Spark session of our own."""

import os
from collections.abc import Sequence
from pathlib import Path

from duesweep.errors import ConfigError

_JARS_VARIABLE = "DUESWEEP_JARS"
# One of these is set where the session is prepared: by spark-submit, or by spark-submit.sh.
_PREPARED_VARIABLES = {"PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"}


def jars() -> Sequence[Path]:
    """The jars for a Spark session of our own, from the folder that spark-submit.sh filled.

    None where spark-submit has prepared a session: its master and its jars are what counts.
    """
    folder = os.environ.get(_JARS_VARIABLE)
    if folder is None or not _PREPARED_VARIABLES.isdisjoint(os.environ):
        return ()
    found = sorted(Path(folder).glob("*.jar"))
    if not found:
        raise ConfigError(
            f"{_JARS_VARIABLE} names {folder}, where there are no jars; run tests/run"
        )
    return found
