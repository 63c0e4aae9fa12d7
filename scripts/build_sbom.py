"""Write a CycloneDX list of what duesweep installs: the packages of requirements.lock, by
cyclonedx-py, and the jars of jars.lock. Run by scripts/audit.sh.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# `<sha256>  <group>_<artifact>-<version>.jar`: a group has no underline, and a version begins with
# a digit.
JAR = re.compile(
    r"^(?P<hash>[0-9a-f]{64})  (?P<group>[^_\s]+)_(?P<name>\S+?)-(?P<version>\d\S*)\.jar$",
    re.MULTILINE,
)


def packages() -> dict[str, Any]:
    """The document with the Python packages."""
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


def jars(text: str) -> Iterator[dict[str, Any]]:
    """The components of a jars.lock."""
    for found in JAR.finditer(text):
        purl = f"pkg:maven/{found['group']}/{found['name']}@{found['version']}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "group": found["group"],
            "name": found["name"],
            "version": found["version"],
            "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": found["hash"]}],
        }


def main() -> int:
    """Write the document to the file that the command line names."""
    document = packages()
    document["metadata"]["component"] = {
        "type": "application",
        "bom-ref": "duesweep",
        "name": "duesweep",
        "version": own_version(),
    }
    document["components"] += jars((ROOT / "jars.lock").read_text(encoding="utf-8"))
    file = Path(sys.argv[1])
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{file}: {len(document['components'])} components")
    return 0


if __name__ == "__main__":
    sys.exit(main())
