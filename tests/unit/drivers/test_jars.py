"""The jars of jars.toml: fetched once, each compared with its hash."""

import base64
import errno
import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from duesweep.core.errors import ConfigError, SparkError
from duesweep.drivers import jars
from duesweep.drivers.jars import Jar, read_lock, ready_jars

_DELTA = "io.delta:delta-spark_9.9:1.0"
_DRIVER = "org.postgresql:postgresql:42"
_FILES = ["org.postgresql_postgresql-42.jar", "io.delta_delta-spark_9.9-1.0.jar"]
_PATHS = {
    "/org/postgresql/postgresql/42/postgresql-42.jar": b"its driver",
    "/io/delta/delta-spark_9.9/1.0/delta-spark_9.9-1.0.jar": b"its classes",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, which is not there yet, for one jar of every Spark and one of Spark 9.9."""
    found = {
        "every": [Jar(_DRIVER, hashlib.sha256(b"its driver").hexdigest())],
        "9.9": [Jar(_DELTA, hashlib.sha256(b"its classes").hexdigest())],
    }
    monkeypatch.setattr(jars, "read_lock", lambda: found)
    monkeypatch.delenv("DUESWEEP_JARS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "duesweep" / "jars"


@pytest.fixture
def mirror(httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> HTTPServer:
    """A mirror that has all jars."""
    for path, content in _PATHS.items():
        httpserver.expect_request(f"/maven{path}").respond_with_data(content)
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", httpserver.url_for("/maven/"))
    return httpserver


def test_jars_are_fetched_into_the_users_cache_once(
    folder: Path, mirror: HTTPServer, capsys: pytest.CaptureFixture[str]
) -> None:
    first = ready_jars("9.9.3")

    assert capsys.readouterr().err.splitlines() == [
        f"Fetching 2 jars for Spark into {folder}: once.",
        *(f"  {number} of 2: {file}, 0.0 MB" for number, file in enumerate(_FILES, 1)),
    ]
    assert [file.read_bytes() for file in first] == [b"its driver", b"its classes"]
    assert [file.name for file in first] == _FILES
    # Nothing else is left there, and other users may read them.
    assert sorted(folder.iterdir()) == sorted(first)
    assert {file.stat().st_mode & 0o777 for file in first} == {0o644}
    mirror.clear()
    assert ready_jars("9.9.3") == first
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("mirror", "folder")
def test_file_that_was_changed_is_fetched_again() -> None:
    changed = ready_jars("9.9.3")[1]
    changed.write_bytes(b"its cl")

    assert ready_jars("9.9.3")[1].read_bytes() == b"its classes"


def test_jar_with_another_hash_is_refused_and_not_kept(
    folder: Path, httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    httpserver.expect_request("/org/postgresql/postgresql/42/postgresql-42.jar").respond_with_data(
        b"another"
    )
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", httpserver.url_for("/"))

    with pytest.raises(SparkError, match="sent another org") as caught:
        ready_jars("9.9.3")

    assert not caught.value.transient
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "file:///nothing/is/here", "nonsense"])
def test_jars_out_of_reach_are_one_sentence_with_a_way_out(
    address: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", address)

    with pytest.raises(SparkError) as caught:
        ready_jars("9.9.3")

    assert caught.value.transient
    assert str(caught.value).startswith("org.postgresql_postgresql-42.jar could not be fetched")
    assert "DEFAULT_ARTIFACT_REPOSITORY=<url>" in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.usefixtures("folder")
def test_password_of_a_mirror_goes_to_the_mirror_alone(
    httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = []

    def answer(request: Request) -> Response:
        heard.append(request.headers.get("Authorization"))
        return Response(status=403)

    path = "/org/postgresql/postgresql/42/postgresql-42.jar"
    httpserver.expect_request(path).respond_with_handler(answer)
    address = f"http://a%40b:s3cret@{httpserver.host}:{httpserver.port}"
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", address)

    with pytest.raises(SparkError) as caught:
        ready_jars("9.9.3")

    assert heard == [f"Basic {base64.b64encode(b'a@b:s3cret').decode()}"]
    assert "s3cret" not in str(caught.value)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "address", ["https://a:s3#cr3t@host/maven", "https://a:s3/cr3t@h", "http://[x"]
)
def test_mirror_that_is_no_address_is_not_quoted(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", address)

    with pytest.raises(ConfigError, match="DEFAULT_ARTIFACT_REPOSITORY is no address") as caught:
        ready_jars("9.9.3")

    assert not re.search("s3|cr3t|host", str(caught.value))


@pytest.mark.usefixtures("mirror")
def test_jar_that_finds_no_room_is_one_sentence_and_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tempfile.NamedTemporaryFile

    def full(**given: Any) -> Any:
        file = real(**given)
        file.write = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        return file

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)

    with pytest.raises(SparkError, match=r"postgresql-42\.jar could not be written") as caught:
        ready_jars("9.9.3")

    assert caught.value.transient
    assert "No space left on device" in str(caught.value)
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("mirror")
def test_folder_that_is_named_takes_and_has_the_jars(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUESWEEP_JARS", str(tmp_path / "image" / "jars"))

    found = ready_jars("9.9.0")

    assert {file.parent for file in found} == {tmp_path / "image" / "jars"}
    assert not folder.exists()


@pytest.mark.usefixtures("mirror", "folder")
def test_home_that_cannot_be_written_is_no_reason_to_do_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()

    found = ready_jars("9.9.0")

    assert found[0].is_relative_to(tmp_path / "tmp")
    assert found[0].parent.parent.stat().st_mode & 0o777 == 0o700
    # Others could put theirs there.
    found[0].parent.parent.chmod(0o777)
    with pytest.raises(ConfigError, match=r"belongs to others.*DUESWEEP_JARS"):
        ready_jars("9.9.0")


@pytest.mark.usefixtures("folder")
def test_spark_that_the_jars_are_not_for_is_named() -> None:
    with pytest.raises(ConfigError, match=r"duesweep starts Spark 9\.9, and PySpark 3\.5\.7 is"):
        ready_jars("3.5.7")


def test_every_line_of_the_lock_is_a_jar_with_its_place() -> None:
    lock = read_lock()

    assert lock.keys() == {"every", "4.0", "4.1"}
    delta = next(jar for jar in lock["4.1"] if "delta-spark" in jar.coordinate)
    assert delta.file == "io.delta_delta-spark_4.1_2.13-4.4.0.jar"
    assert delta.path == ("io/delta/delta-spark_4.1_2.13/4.4.0/delta-spark_4.1_2.13-4.4.0.jar")
    assert {len(jar.sha256) for line in lock.values() for jar in line} == {64}
