"""A checkout's environment: pip's wheel, from pip's own index by its hash, and the progress."""

import base64
import hashlib
import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest
from pytest_httpserver import HTTPServer

from support.waiting import until

_SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "environment.py"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, for a wheel of other content."""
    spec = importlib.util.spec_from_file_location("environment", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for name in ("PIP_INDEX_URL", "PIP_CERT", "PIP_PROXY", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
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


def test_proxy_that_is_no_address_is_a_sentence_without_its_password(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_PROXY", "http:/user:s3cret@host:9")

    with pytest.raises(ValueError, match="proxy") as caught:
        environment.fetch_pip()

    assert "s3" not in str(caught.value)


@pytest.mark.parametrize("name", ["ca.pem", ""])
def test_authorities_of_pip_may_be_a_folder_or_begin_at_home(
    name: str, environment: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_CERT", f"~/{name}")
    asked: list[dict[str, Path]] = []

    def refuse(**where: Path) -> None:
        asked.append(where)
        raise OSError

    monkeypatch.setattr(environment.ssl, "create_default_context", refuse)

    with pytest.raises(ValueError, match="could not be fetched"):
        environment.fetch_pip()

    assert asked == [{"cafile": tmp_path / name} if name else {"capath": tmp_path}]


@pytest.mark.parametrize(
    ("place", "variable"),
    [
        (".config/pip/pip.conf", None),
        (".pip/pip.conf", None),
        ("xdg/pip/pip.conf", "XDG_CONFIG_HOME"),
        ("company.conf", "PIP_CONFIG_FILE"),
    ],
)
@pytest.mark.parametrize("section", ["global", "install"])
def test_pip_comes_from_the_index_of_its_own_settings(
    place: str,
    variable: str | None,
    section: str,
    environment: ModuleType,
    httpserver: HTTPServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    name = environment.PIP
    httpserver.expect_request("/its/pip/").respond_with_data(f'<a href="{name}">pip</a>')
    httpserver.expect_request(f"/its/pip/{name}").respond_with_data(b"its wheel")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PIP_CONFIG_FILE")
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"[{section}]\nindex-url = {httpserver.url_for('/its')}/\n", encoding="utf-8")
    if variable is not None:
        monkeypatch.setenv(variable, str(file if file.parent == tmp_path else tmp_path / "xdg"))

    assert environment.fetch_pip() == b"its wheel"
    # The environment counts before files, and this file stands for none.
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert environment.setting_of_pip("index-url") is None
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/")
    with pytest.raises(
        ValueError, match=r"name another one with PIP_INDEX_URL, or .* in pip\.conf"
    ):
        environment.fetch_pip()


def test_progress_says_how_much_is_there(
    environment: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(environment, "_QUIET_SECONDS", 0.01)
    monkeypatch.setenv("TMPDIR", "/as/before")
    told = ""

    def is_told() -> bool:
        nonlocal told
        told += capsys.readouterr().err
        return "\n  3 MB, 0 s\n" in told

    (tmp_path / "installed").write_bytes(bytes(1_000_000))
    with environment.progress(tmp_path):
        Path(os.environ["TMPDIR"], "fetched").write_bytes(bytes(2_000_000))
        until(is_told)

    assert os.environ["TMPDIR"] == "/as/before"
