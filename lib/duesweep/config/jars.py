"""The jars for a Spark session that duesweep starts itself."""

import os
from collections.abc import Sequence
from pathlib import Path

from duesweep.errors import ConfigError

_JARS_VARIABLE = "DUESWEEP_JARS"
# One of these is set if the session is prepared by spark-submit or spark-submit.sh.
_PREPARED_VARIABLES = {"PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"}


def jars() -> Sequence[Path]:
    """The jars for a Spark session, from the folder that spark-submit.sh filled.

    Empty if spark-submit has prepared a session, which has a master and jars of its own. Raises
    `ConfigError` for a folder without jars.
    """
    folder = os.environ.get(_JARS_VARIABLE)
    if folder is None or not _PREPARED_VARIABLES.isdisjoint(os.environ):
        return ()
    found = sorted(Path(folder).glob("*.jar"))
    if not found:
        raise ConfigError(
            f"{_JARS_VARIABLE} names the folder {folder}, which has no jars", advice="run tests/run"
        )
    return found
