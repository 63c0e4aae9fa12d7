"""`duesweep --version`, wherever the package is."""

import platform
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import duesweep
from duesweep.cli.app import main

ROOT = Path(__file__).resolve().parents[3]


def test_version_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0

    output = capsys.readouterr()
    versions = f"Python {platform.python_version()}, PySpark {metadata.version('pyspark')}"
    assert (output.out, output.err) == (f"duesweep {duesweep.__version__} ({versions})\n", "")


def test_pyspark_that_is_not_installed_is_no_trouble(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", nothing)

    assert main(["--version"]) == 0
    assert f"duesweep {duesweep.__version__} (Python" in capsys.readouterr().out


def test_there_is_one_source_of_the_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert "version" not in project["project"]
    assert project["project"]["dynamic"] == ["version"]
    source = ROOT / project["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{duesweep.__version__}"' in source.read_text(encoding="utf-8")


def test_version_is_told_from_the_archive_without_loading_spark(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from build_package import package  # noqa: PLC0415
    finally:
        sys.path.pop(0)
    archive = tmp_path / "duesweep.zip"
    archive.write_bytes(package())

    # Isolated: neither the checkout on the path nor its settings.
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); " + (
        "from duesweep.cli.app import main; print(sys.modules['duesweep'].__file__); "
        "main(['--version']); print('pyspark' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )

    where, told, has_spark = ran.stdout.splitlines()
    assert where.startswith(str(archive))
    assert told.startswith(f"duesweep {duesweep.__version__} (Python ")
    assert has_spark == "False"
