"""The bundle for Databricks in the fake workspace of Databricks' own command line.

DUESWEEP_TEST_DATABRICKS_CLI names a checkout of databricks/cli, which is built with Go:
tests/run tests/installed -k bundle
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.commands import Ran, run_program
from support.endpoint import Endpoint
from support.installed import copy_of_the_checkout, install, python_of
from support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("wheel"), pytest.mark.timeout(3_600)]

_VARIABLE = "DUESWEEP_TEST_DATABRICKS_CLI"
# A test of theirs would do no more before it uses the workspace.
_SERVER = """package fake

import (
    "io"
    "os"
    "testing"

    "github.com/databricks/cli/libs/testserver"
)

func TestServe(t *testing.T) {
    server := testserver.New(t)
    testserver.AddDefaultHandlers(server)
    os.WriteFile(os.Getenv("ADDRESS"), []byte(server.URL), 0o644)
    io.Copy(io.Discard, os.Stdin)
}
"""
# Databricks' own, which every runtime has. The fake workspace answers no request while a job runs.
_RUNTIME = """import os
from types import SimpleNamespace as Fake

_SECRETS = {"DUESWEEP_STORE__DSN": os.environ["SECRET_DSN"]}
dbutils = Fake(
    secrets=Fake(
        list=lambda scope: [Fake(key=key) for key in _SECRETS if scope == "duesweep"],
        get=lambda scope, key: _SECRETS[key],
    )
)
"""
# It makes an empty environment for the task's file, and installs no library in it.
_UV = """#!/bin/sh
test "$1" = venv || exec "{uv}" "$@"
for folder; do :; done
mkdir -p "$folder/bin"
printf '#!/bin/sh\\nexec "{python}" "$@"\\n' > "$folder/bin/python"
chmod +x "$folder/bin/python"
"""


@dataclass(frozen=True)
class _Workspace:
    """A checkout whose bundle is deployed there by `program`."""

    program: Path
    checkout: Path
    variables: Mapping[str, str]

    def bundle(self, *words: str, config: Path) -> Ran:
        options = (
            "-t",
            "prod",
            "--var",
            f"config={config}",
            "--var",
            "alert_email=ops@example.org",
        )
        command = (self.program, "bundle", *words, *options)
        folder = self.checkout / "conf" / "databricks"
        return run_program(*command, env=self.variables, cwd=folder)


@pytest.fixture
def workspace(wheel: Path, endpoint: Endpoint, tmp_path: Path) -> Iterator[_Workspace]:
    programs = tmp_path / "programs"
    _build(programs)
    python = install(tmp_path / "runtime", wheel, python=python_of("3.12")).python
    real = Path(sys.executable).with_name("uv")
    (programs / "uv").write_text(_UV.format(uv=real, python=python))
    (programs / "uv").chmod(0o755)
    runtime = tmp_path / "library" / "databricks" / "sdk" / "runtime.py"
    runtime.parent.mkdir(parents=True)
    runtime.write_text(_RUNTIME)
    address = tmp_path / "address"
    variables = {
        **os.environ,
        **{"PATH": f"{programs}:{os.environ['PATH']}", "ADDRESS": str(address)},
        **{"PYTHONPATH": str(tmp_path / "library"), "SECRET_DSN": endpoint.dsn},
        "DATABRICKS_TOKEN": "any",
    }
    with (
        (tmp_path / "server.log").open("wb") as log,
        subprocess.Popen(
            [programs / "workspace.test", "-test.run", "TestServe", "-test.timeout", "30m"],
            **{"stdin": subprocess.PIPE, "stdout": log, "stderr": log},
            env=variables,
            cwd=tmp_path,
        ) as server,
    ):
        try:
            until(address.exists, 60)
            variables["DATABRICKS_HOST"] = address.read_text()
            checkout = copy_of_the_checkout(tmp_path / "checkout")
            yield _Workspace(programs / "databricks", checkout, variables)
        finally:
            server.kill()


def _build(folder: Path) -> None:
    source = os.environ.get(_VARIABLE)
    if source is None:
        pytest.skip(f"{_VARIABLE} names no checkout of databricks/cli")
    folder.mkdir()
    (folder / "serve_test.go").write_text(_SERVER)
    placed = {f"{source}/fake/serve_test.go": str(folder / "serve_test.go")}
    (folder / "overlay.json").write_text(json.dumps({"Replace": placed}))
    overlay, tested = folder / "overlay.json", folder / "workspace.test"
    for command in (
        ("build", "-o", folder / "databricks", "."),
        # Its vet would look for the folder of a file that is only laid over the checkout.
        ("test", "-vet=off", "-overlay", overlay, "-c", "-o", tested, "./fake"),
    ):
        subprocess.run(["go", *map(str, command)], cwd=source, timeout=1_500, check=True)


def test_bundle_is_deployed_and_its_jobs_run(workspace: _Workspace, endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay_many(2_000)
    endpoint.execute(f"DROP TABLE {endpoint.table('duesweep_journal')}")
    file = endpoint.config_file()
    dsn = next(line for line in file.read_text().splitlines() if line.startswith("store.dsn"))
    file.write_text(file.read_text().replace(dsn, ""))

    for words in (("validate",), ("deploy",)):
        done = workspace.bundle(*words, config=file)
        assert done.code == 0, done.told
        assert "Warning" not in done.told
    too_early = workspace.bundle("run", "sweep", config=file)
    assert too_early.code == 1
    assert "Run the command `setup` once" in too_early.err
    for job in ("setup", "sweep_serverless"):
        done = workspace.bundle("run", job, config=file)
        assert done.code == 0, done.told

    assert len(endpoint.queue_rows("Billing")) == 2_000
    audited = endpoint.run("audit")
    assert audited.code == 0, audited.told
    assert "2,000 tombstones" in audited.out
