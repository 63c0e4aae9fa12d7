"""The wheel: what is in it is enough to run."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_wheel_has_its_files_and_its_entry_point_runs(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip"]
    build = [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(_ROOT)]
    subprocess.run(build, check=True, timeout=250)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    packed = {name for name in names if name.startswith(("duesweep/", "duesweep_testing/"))}
    lib = _ROOT / "lib"
    files = {
        file.relative_to(lib).as_posix()
        for file in lib.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert packed == files
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    target = tmp_path / "installed"
    install = [*pip, "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(install, check=True, timeout=250)

    done = subprocess.run(
        [sys.executable, str(target / "bin" / "duesweep"), "--version"],
        env=os.environ | {"PYTHONPATH": str(target)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.startswith("duesweep ")
