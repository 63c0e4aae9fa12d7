"""`./spark-submit.sh`, as a person or a cron job runs it."""

import os
import subprocess
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end; `environment` goes over this process's."""
    return subprocess.run(
        [str(_ROOT / "spark-submit.sh"), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | environment,
        check=False,
    )
