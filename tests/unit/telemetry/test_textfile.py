"""The file for node_exporter's text file collector, and metrics that are pushed, to a server that
stands for the Pushgateway.
"""

import fcntl
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from duesweep.core.errors import Problem
from duesweep.operations.run import Run
from duesweep.report.metrics import METRICS, Sample, figures_in
from duesweep.report.outputs import pushgateway, tell, textfile
from support.ports import free_port
from support.reports import AT, SOURCE, open_breaker, report, run

_LATER = AT + timedelta(minutes=1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sales.prom"


def _tell(file: Path, told: Run) -> list[Problem]:
    return list(tell([told], [textfile(file)]))


def _samples(file: Path) -> Iterator[tuple[str, float]]:
    for family in text_string_to_metric_families(file.read_text(encoding="utf-8")):
        for sample in family.samples:
            assert sample.labels["source"] == SOURCE
            yield sample.name, sample.value


def test_parser_of_prometheus_reads_every_metric_with_its_type(file: Path) -> None:
    by = Counter({("Billing", outcome): 1 for outcome in ("dispatched", "failed", "exhausted")})
    told_of = report(breakers=(open_breaker(),), by_destination=by)
    assert _tell(file, run(report=told_of)) == []

    families = text_string_to_metric_families(file.read_text(encoding="utf-8"))
    told = {
        (s.name, str(f.type), f.documentation, *sorted(s.labels))
        for f in families
        for s in f.samples
    }
    assert told == {
        (
            m.name,
            "counter" if m.name.endswith("_total") else "gauge",
            f"{m.meaning}.",
            *sorted(filter(None, ("source", m.label))),
        )
        for m in METRICS
    }


def test_file_is_replaced_whole_and_nothing_else_stays_in_its_folder(file: Path) -> None:
    _tell(file, run())
    reader = file.open(encoding="utf-8")

    _tell(file, run(at=_LATER))

    with reader:
        assert f'duesweep_runs_total{{source="{SOURCE}"}} 1.0' in reader.read()
    assert dict(_samples(file))["duesweep_runs_total"] == 2
    assert set(file.parent.iterdir()) == {file, file.with_name(".sales.prom.lock")}


def test_file_can_be_read_by_others(file: Path) -> None:
    _tell(file, run())

    assert file.stat().st_mode & 0o444 == 0o444


def test_file_of_another_format_is_replaced_and_told(file: Path) -> None:
    file.write_text("this is {no metric\n", encoding="utf-8")

    (problem,) = _tell(file, run())

    assert str(file) in problem.text
    assert "its counters start again from zero" in str(problem)
    assert dict(_samples(file))["duesweep_runs_total"] == 1


def _runs(file: Path) -> dict[str, float]:
    found = figures_in(file.read_text(encoding="utf-8"))
    runs = Sample("duesweep_runs_total")
    return {source: figures[runs] for source, figures in found.items()}


def test_sources_share_a_file_and_one_without_a_run_for_a_day_is_forgotten(file: Path) -> None:
    _tell(file, run(source="old"))
    _tell(file, run(source="new", at=AT + timedelta(hours=23)))
    _tell(file, run(source="new", at=AT + timedelta(hours=23)))
    assert _runs(file) == {"old": 1, "new": 2}

    _tell(file, run(at=AT + timedelta(hours=25)))

    assert _runs(file) == {"new": 2, SOURCE: 1}


def test_runs_that_end_at_once_are_all_counted(file: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        problems = list(pool.map(lambda i: _tell(file, run(source=f"s{i % 4}")), range(40)))

    assert problems == [[]] * 40
    assert _runs(file) == {f"s{i}": 10 for i in range(4)}


def test_lock_that_another_run_never_gives_back_is_one_problem(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duesweep.report.outputs._LOCK_SECONDS", 0.2)
    with file.with_name(".sales.prom.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (problem,) = _tell(file, run())

    assert str(file) in problem.text
    assert "another run has locked it for 0.2 s" in problem.text
    assert not file.exists()


def test_folder_that_is_not_there_is_one_problem(tmp_path: Path) -> None:
    (problem,) = _tell(tmp_path / "absent" / "sales.prom", run())

    assert "No such file or directory" in problem.text
    assert problem.advice == "the run itself is not affected"


@dataclass
class _Gateway:
    """Keeps the body that is PUT for each group, unless its `answer` refuses it."""

    host: str
    answer: str = "200 OK"
    groups: dict[str, str] = field(default_factory=dict)
    credentials: list[str] = field(default_factory=list)

    def reply(self, request: Request) -> Response:
        self.credentials.append(request.headers.get("Authorization", ""))
        assert request.method == "PUT"
        if self.answer == "200 OK":
            self.groups[request.environ["RAW_URI"]] = request.get_data(as_text=True)
        return Response(status=self.answer)


@pytest.fixture
def gateway(httpserver: HTTPServer) -> _Gateway:
    gateway = _Gateway(f"{httpserver.host}:{httpserver.port}")
    httpserver.expect_request(re.compile(".*")).respond_with_handler(gateway.reply)
    return gateway


def _figures(text: str) -> dict[str, float]:
    families = text_string_to_metric_families(text)
    return {sample.name: sample.value for family in families for sample in family.samples}


def _group_of(path: str) -> tuple[str, str]:
    """Job and source of a group's path; a value with slashes is base64."""
    _, _, key, job, label, value = path.split("/")
    assert (key, label) == ("job", "source@base64")
    return job, b64decode(unquote(value), altchars=b"-_").decode()


def test_run_replaces_its_sources_group_and_keeps_the_time_of_the_last_success(
    gateway: _Gateway,
) -> None:
    output = pushgateway(f"http://{gateway.host}/")
    assert list(tell([run()], [output])) == []
    assert list(tell([run(4, at=_LATER, report=None, due=None)], [output])) == []

    groups = {_group_of(path): _figures(text) for path, text in gateway.groups.items()}
    success = groups.pop(("duesweep_success", SOURCE))
    assert success == {"duesweep_last_success_timestamp_seconds": AT.timestamp()}
    ((group, figures),) = groups.items()
    assert group == ("duesweep", SOURCE)
    # Counters of the last run: the gateway's contents are not read.
    assert figures["duesweep_runs_total"] == 1
    assert figures["duesweep_dispatched_messages_total"] == 0
    assert figures["duesweep_last_run_timestamp_seconds"] == _LATER.timestamp()
    assert not {"duesweep_due_messages", "duesweep_last_success_timestamp_seconds"} & figures.keys()


def test_user_and_password_go_as_a_header_and_are_never_shown(gateway: _Gateway) -> None:
    output = pushgateway(f"http://sweeper:p%40ss@{gateway.host}")
    assert list(tell([run()], [output])) == []

    sent = {b64decode(each.removeprefix("Basic ")) for each in gateway.credentials}
    assert sent == {b"sweeper:p@ss"}
    assert "p%40ss" not in f"{output} {output!r}"


def test_gateway_that_refuses_is_one_problem(gateway: _Gateway) -> None:
    gateway.answer = "400 Bad Request"

    (problem,) = tell([run()], [pushgateway(f"http://sweeper:secret@{gateway.host}")])

    assert problem.text == (
        f"The Pushgateway at http://{gateway.host} did not get the metrics of this run: "
        "it answered 400 Bad Request"
    )


def test_redirect_gets_neither_metrics_nor_password(
    gateway: _Gateway, httpserver: HTTPServer
) -> None:
    elsewhere = f"http://127.0.0.1:{free_port()}"
    httpserver.clear()
    httpserver.expect_request(re.compile(".*")).respond_with_data(
        status=302, headers={"Location": elsewhere}
    )

    (problem,) = tell([run()], [pushgateway(f"http://sweeper:secret@{gateway.host}")])

    # The other address has no listener: that it refuses would be another sentence.
    assert "it answered 302" in problem.text
