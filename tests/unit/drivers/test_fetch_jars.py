"""The jars of the lock come from a Maven repository, each compared with its hash, or not at all."""

import hashlib
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer

ROOT = Path(__file__).resolve().parents[3]
_PATH = "io/delta/delta-spark_4.1_2.13/4.4.0/delta-spark_4.1_2.13-4.4.0.jar"
_FILE = "io.delta_delta-spark_4.1_2.13-4.4.0.jar"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirror with one jar, which the lock names."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import fetch_jars  # noqa: PLC0415 - a script

    jar = tmp_path / "mirror" / _PATH
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"classes")
    lock = tmp_path / "jars.lock"
    lock.write_text(f"# a comment\n{hashlib.sha256(b'classes').hexdigest()}  {_FILE}\n")
    monkeypatch.setattr(fetch_jars, "LOCK", lock)
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", (tmp_path / "mirror").as_uri())
    return tmp_path / "mirror"


@pytest.mark.usefixtures("repository")
def test_jars_come_from_the_mirror_with_a_copy_of_the_lock(tmp_path: Path) -> None:
    from fetch_jars import fetch  # noqa: PLC0415 - a script

    folder = tmp_path / ".cache" / "jars"
    folder.mkdir(parents=True)
    (folder / "an old one.jar").touch()

    fetch(folder)

    assert {file.name for file in folder.iterdir()} == {_FILE, "jars.lock"}
    assert (folder / _FILE).read_bytes() == b"classes"
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda jar: jar.write_bytes(b"others"), "is not the file whose SHA-256 is in jars.lock"),
        (lambda jar: jar.unlink(), "could not be fetched"),
    ],
)
def test_jar_that_is_missing_or_another_one_leaves_what_was_there(
    change: object, says: str, repository: Path, tmp_path: Path
) -> None:
    from fetch_jars import fetch  # noqa: PLC0415 - a script

    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "an old one.jar").touch()
    assert callable(change)
    change(repository / _PATH)

    with pytest.raises((OSError, ValueError), match=says):
        fetch(folder)

    assert [file.name for file in folder.iterdir()] == ["an old one.jar"]


def test_password_of_a_mirror_is_sent_and_in_no_message(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, httpserver: HTTPServer
) -> None:
    from fetch_jars import fetch  # noqa: PLC0415 - a script

    me = {"Authorization": "Basic bWU6cEBzcw=="}
    content = (repository / _PATH).read_bytes()
    httpserver.expect_request(f"/maven/{_PATH}", headers=me).respond_with_data(content)
    mirror = f"http://me:p%40ss@{httpserver.host}:{httpserver.port}"
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", f"{mirror}/maven/")

    fetch(tmp_path / "jars")

    assert (tmp_path / "jars" / _FILE).read_bytes() == content
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", f"{mirror}/nothing")
    with pytest.raises(OSError, match="could not be fetched") as caught:
        fetch(tmp_path / "others")
    assert "ss@" not in str(caught.value)


def test_every_line_of_the_lock_is_a_jar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from fetch_jars import LOCK, locked  # noqa: PLC0415 - a script

    text = LOCK.read_text("utf-8")

    assert [jar.file for jar in locked(text)] == [
        line.split()[1] for line in text.splitlines() if line.endswith(".jar")
    ]
