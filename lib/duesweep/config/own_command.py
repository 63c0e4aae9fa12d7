"""How this process was started, for those who start it again: its command and its variables."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

_COMMAND_VARIABLE = "DUESWEEP_COMMAND"


def own_command() -> Sequence[str]:
    """The words that run duesweep: spark-submit.sh, else the entry point, else this Python."""
    script = os.environ.get(_COMMAND_VARIABLE)
    if script is not None:
        return [script]
    started = Path(sys.argv[0])
    if started.name == "duesweep" and os.access(started, os.X_OK):
        return [str(started.absolute())]
    return [sys.executable, "-P", "-m", "duesweep"]


def given_variables() -> Sequence[str]:
    """The names of the environment's variables that are settings, or lead to the jars."""
    settings = {name for name in os.environ if name.startswith("DUESWEEP_") and "__" in name}
    return sorted(settings | ({"DUESWEEP_JARS"} & os.environ.keys()))
