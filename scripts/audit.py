"""Write build/sbom.json, the CycloneDX list of all that duesweep installs (requirements.lock and
jars.toml), and compare the Python packages with the known vulnerabilities. Run by scripts/audit.sh.

Exits with 0 if all were compared and none is known, with 1 if some are, with 2 if the list of
vulnerabilities is out of reach, or lacks packages: then nothing is known about these.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
JARS = ROOT / "lib" / "duesweep" / "drivers" / "jars.toml"
SBOM = ROOT / "build" / "sbom.json"
FOUND, NOT_COMPARED = 1, 2
Pin = tuple[str, str]


def write_sbom() -> None:
    """The packages, by cyclonedx-py, and the jars."""
    document = _packages()
    document["metadata"]["component"] = {
        "type": "application",
        "bom-ref": "duesweep",
        "name": "duesweep",
        "version": own_version(),
    }
    document["components"] += jars(JARS.read_text(encoding="utf-8"))
    SBOM.parent.mkdir(exist_ok=True)
    SBOM.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{SBOM}: {len(document['components'])} components")


def _packages() -> dict[str, Any]:
    tool = Path(sys.executable).with_name("cyclonedx-py")
    command = [str(tool), "requirements", "--output-reproducible", "--of", "JSON", "-o", "-"]
    done = subprocess.run(
        [*command, str(ROOT / "requirements.lock")], check=True, capture_output=True, text=True
    )
    document: dict[str, Any] = json.loads(done.stdout)
    for component in document["components"]:
        # It repeats the line of the lock, whose hashes are listed by themselves.
        component.pop("description", None)
    return document


def own_version() -> str:
    """duesweep's version, without loading it."""
    text = (ROOT / "lib" / "duesweep" / "__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return str(version)


def jars(lock: str) -> Iterator[dict[str, Any]]:
    """The components of a jars.toml."""
    for files in tomllib.loads(lock)["files"].values():
        for coordinate, sha256 in files.items():
            group, name, version = coordinate.split(":")
            purl = f"pkg:maven/{group}/{name}@{version}"
            yield {
                "type": "library",
                "bom-ref": purl,
                "group": group,
                "name": name,
                "version": version,
                "purl": purl,
                "hashes": [{"alg": "SHA-256", "content": sha256}],
            }


def locked_packages(lock: str) -> set[Pin]:
    """Name and version of each package that a requirements.lock can install, on any machine."""
    return set(re.findall(r"^([\w.-]+)==([^\s;]+)", lock, re.MULTILINE))


def files_of(pins: set[Pin]) -> Iterator[str]:
    """The packages as files of requirements. pip-audit would leave out packages that this Python
    does not install, so they have no markers; and it takes one version of a package in one file.
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
    """Print the findings on the locked packages; the exit code."""
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
            f"lacks these packages: {names}. Run it where the Python package index can be reached.",
            file=sys.stderr,
        )
    return FOUND if known else NOT_COMPARED if missing else 0


if __name__ == "__main__":
    write_sbom()
    pins = locked_packages((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    sys.exit(judge([found for each in files_of(pins) for found in report(each)], pins))
