"""Commands in this process that end with an exit code and one sentence."""

import pytest

from duesweep.cli.app import main
from support.endpoint import Endpoint


def run(*arguments: str) -> int:
    """Run `duesweep` with these arguments; its exit code."""
    return int(main(list(arguments)))


def assert_refused(
    capsys: pytest.CaptureFixture[str],
    endpoint: Endpoint,
    code: int,
    expected: str,
    *arguments: str,
) -> None:
    """A sweep ends with `code` and one sentence that holds `expected`, and writes nothing."""
    before = endpoint.fetch("SELECT relname FROM pg_class ORDER BY 1")

    assert run("sweep", *arguments) == code

    output = capsys.readouterr()
    assert output.out == ""
    (sentence,) = output.err.strip().splitlines()
    assert expected in sentence
    assert not (endpoint.folder / "ledger").exists()
    assert endpoint.fetch("SELECT relname FROM pg_class ORDER BY 1") == before
