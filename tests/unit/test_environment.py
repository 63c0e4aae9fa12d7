"""pip's wheel for a checkout's environment: from the index of `PIP_INDEX_URL`, by its hash."""

import base64
import hashlib
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from pytest_httpserver import HTTPServer

_SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "environment.py"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, for a wheel of other content."""
    spec = importlib.util.spec_from_file_location("environment", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "_PIP_SHA256", hashlib.sha256(b"its wheel").hexdigest())
    return script


@pytest.mark.parametrize("link", ["{pip}#sha256=1", "../../files/{pip}#x", "/files/{pip}"])
@pytest.mark.parametrize("quote", ["'", '"'])
def test_pip_comes_from_an_index_that_asks_for_a_password(
    link: str,
    quote: str,
    environment: ModuleType,
    httpserver: HTTPServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = f"<a href={quote}{link.format(pip=environment.PIP)}{quote}>pip</a>"
    token = base64.b64encode(b"a@b:s3/cret").decode()
    headers = {"Authorization": f"Basic {token}"}
    place = "/simple/pip" if link[0] == "{" else "/files"
    httpserver.expect_request("/simple/pip/", headers=headers).respond_with_data(page)
    httpserver.expect_request(f"{place}/{environment.PIP}", headers=headers).respond_with_data(
        b"its wheel"
    )
    address = f"http://a%40b:s3%2Fcret@{httpserver.host}:{httpserver.port}/simple"
    monkeypatch.setenv("PIP_INDEX_URL", address)

    assert environment.fetch_pip() == b"its wheel"


@pytest.mark.parametrize(
    "address",
    ["http://a:s3cret@127.0.0.1:1/simple", "https://a:s3#cret@h/simple", "https://a:s3/cret@h/"],
)
def test_index_out_of_reach_is_a_sentence_without_its_password(
    address: str, environment: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", address)

    with pytest.raises(ValueError, match="PIP_INDEX_URL") as caught:
        environment.fetch_pip()

    assert "s3" not in str(caught.value)
