"""The script that Spark's class archive is made from runs in the program's environment."""

import os
import subprocess
import sys
from pathlib import Path

from duesweep.drivers.spark_start import SparkStart

ROOT = Path(__file__).resolve().parents[2]
_WITHOUT = """
import runpy, sys
sys.modules |= dict.fromkeys(sys.argv.pop(1).split())
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


def test_script_needs_no_package_that_only_tests_have() -> None:
    lock = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    locked = {line.partition("==")[0] for line in lock if "==" in line}
    program = (ROOT / "scripts" / "program.txt").read_text("utf-8").split()
    others = " ".join(sorted(name.replace("-", "_") for name in locked.difference(program)))
    variables = SparkStart(ROOT / ".cache" / "jars", archives_classes=False).make_ready("local[1]")
    script = ROOT / "scripts" / "train_jvm.py"

    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, others, script],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert "pandas" in others.split()
    assert done.returncode == 0, done.stderr
