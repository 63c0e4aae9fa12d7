"""Compare requirements.lock with the known vulnerabilities, by pip-audit; for scripts/audit.sh."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOUND, NOT_COMPARED = 1, 2
Pin = tuple[str, str]


def locked_packages(lock: str) -> set[Pin]:
    """Name and version of each package that a requirements.lock can install, on any machine."""
    return set(re.findall(r"^([\w.-]+)==([^\s;]+)", lock, re.MULTILINE))


def files_of(pins: set[Pin]) -> Iterator[str]:
    """The packages as files of requirements. pip-audit would leave out what this Python does not
    install, so they have no markers; and it takes one version of a package in one file.
    """
    left = sorted(pins)
    while left:
        once = dict(reversed(left))
        yield "".join(f"{name}=={version}\n" for name, version in once.items())
        left = [pin for pin in left if pin not in once.items()]


def report(requirements: str) -> list[dict[str, Any]]:
    """What pip-audit says of each package of a file; none if it has nothing to compare with."""
    tool = Path(sys.executable).with_name("pip-audit")
    options = ("--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text(requirements, encoding="utf-8")
        command = [str(tool), *options, "--requirement", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(done.stderr.strip().rpartition("\n")[2], file=sys.stderr)
        return []
    return packages


def judge(packages: list[dict[str, Any]], locked: set[Pin]) -> int:
    """Print what was found about the locked packages; the exit code."""
    # pip-audit itself succeeds if it could compare nothing.
    compared = [package for package in packages if "skip_reason" not in package]
    known = [(package, vuln) for package in compared for vuln in package["vulns"]]
    for package, vuln in known:
        fixed = ", ".join(vuln["fix_versions"]) or "no version yet"
        print(f"{package['name']} {package['version']}: {vuln['id']}, fixed in {fixed}")
    print(f"{len(compared)} packages compared, {len(known)} known vulnerabilities")
    missing = locked - {(package["name"], package["version"]) for package in compared}
    if missing:
        names = ", ".join(" ".join(package) for package in sorted(missing))
        print(
            "The audit is incomplete: the list of vulnerabilities (PyPI's) is out of reach or "
            f"lacks these packages: {names}. Run it where https://pypi.org can be reached.",
            file=sys.stderr,
        )
    return FOUND if known else NOT_COMPARED if missing else 0


if __name__ == "__main__":
    pins = locked_packages((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    sys.exit(judge([found for each in files_of(pins) for found in report(each)], pins))
