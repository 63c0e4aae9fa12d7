"""`duesweep --version`, wherever the package is."""

import json
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import duesweep
from duesweep.cli.app import main
from duesweep.drivers.statements import statements
from support.sql_statements import DIALECTS

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


def test_archive_tells_its_version_without_spark_and_has_all_statements(
    tmp_path: Path,
) -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from build_package import package  # noqa: PLC0415
    finally:
        sys.path.pop(0)
    archive = tmp_path / "duesweep.zip"
    archive.write_bytes(package())

    # Isolated: neither the checkout on the path nor its settings.
    lib = str(ROOT / "lib")
    paths = f"{str(archive)!r}, *(path for path in sys.path if path != {lib!r})"
    code = f"import sys; sys.path = [{paths}]; " + (
        "from duesweep.cli.app import main; print(sys.modules['duesweep'].__file__); "
        "main(['--version']); print('pyspark' in sys.modules); import json; "
        "from duesweep.drivers.statements import statements; "
        f"print(json.dumps([dict(statements(d)) for d in {DIALECTS!r}]))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )

    where, told, has_spark, texts = ran.stdout.splitlines()
    assert where.startswith(str(archive))
    assert told.startswith(f"duesweep {duesweep.__version__} (Python ")
    assert has_spark == "False"
    assert json.loads(texts) == [statements(dialect) for dialect in DIALECTS]
