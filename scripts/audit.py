"""Compare requirements.lock with the known vulnerabilities, by pip-audit; for scripts/audit.sh."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOUND, NOT_COMPARED = 1, 2


def report() -> list[dict[str, Any]]:
    """What pip-audit says of each package; none if it has nothing to compare with."""
    tool = Path(sys.executable).with_name("pip-audit")
    options = ("--disable-pip", "--progress-spinner", "off", "--format", "json")
    lock = str(ROOT / "requirements.lock")
    done = subprocess.run(
        [str(tool), *options, "--requirement", lock], capture_output=True, text=True, check=False
    )
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(done.stderr.strip().rpartition("\n")[2], file=sys.stderr)
        return []
    return packages


def judge(packages: list[dict[str, Any]]) -> int:
    """Print what was found; the exit code."""
    # pip-audit itself succeeds if it could compare nothing.
    compared = [package for package in packages if "skip_reason" not in package]
    known = [(package, vuln) for package in compared for vuln in package["vulns"]]
    for package, vuln in known:
        fixed = ", ".join(vuln["fix_versions"]) or "no version yet"
        print(f"{package['name']} {package['version']}: {vuln['id']}, fixed in {fixed}")
    print(f"{len(compared)} packages compared, {len(known)} known vulnerabilities")
    if known:
        return FOUND
    if compared and len(compared) == len(packages):
        return 0
    missing = len(packages) - len(compared)
    print(
        f"The audit is incomplete: {missing or 'all'} packages could not be compared, because the "
        "list of vulnerabilities (PyPI's) is out of reach or lacks them. Run it where "
        "https://pypi.org can be reached.",
        file=sys.stderr,
    )
    return NOT_COMPARED


if __name__ == "__main__":
    sys.exit(judge(report()))
