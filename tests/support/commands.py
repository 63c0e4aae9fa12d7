"""Commands in the process of the test, and programs in processes of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from duesweep.cli.app import main

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its output with --json."""
        return json.loads(self.out)

    @property
    def told(self) -> str:
        return self.out + self.err


# This package, which brings no Java, hides the real one.
NO_JAVA_PACKAGE = ROOT / "tests" / "support" / "no_java"
WITHOUT_JAVA = {
    "JAVA_HOME": "/nonexistent",
    "PYTHONPATH": os.pathsep.join(map(str, (NO_JAVA_PACKAGE, ROOT / "lib"))),
}


def run(*arguments: str) -> Ran:
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main(arguments)
    return Ran(code, out.getvalue(), err.getvalue())


def run_program(*command: object, env: Mapping[str, str] | None = None, **options: Any) -> Ran:
    """Run a program to its end; `options` are more options of `subprocess.run`."""
    done = subprocess.run(
        list(map(str, command)),
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        **options,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def run_python(*arguments: object, **environment: str) -> Ran:
    """Run Python with duesweep's library; `environment` overrides this process's."""
    library = {"PYTHONPATH": str(ROOT / "lib")}
    return run_program(sys.executable, *arguments, env=os.environ | library | environment)


def run_on_shell(*arguments: str, **environment: str) -> Ran:
    """Run `./spark-submit.sh`, as a person or a cron job does."""
    return run_program(ROOT / "spark-submit.sh", *arguments, env=os.environ | environment)
