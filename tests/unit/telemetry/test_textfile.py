"""The file for node_exporter's text file collector."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from duesweep.core.errors import Problem
from duesweep.telemetry.definitions import METRICS
from duesweep.telemetry.prometheus import figures_in
from duesweep.telemetry.run import Run
from duesweep.telemetry.tell import tell
from duesweep.telemetry.textfile import TextFile
from support.telemetry import AT, SOURCE, run

_LATER = AT + timedelta(minutes=1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sales.prom"


def _tell(file: Path, told: Run) -> list[Problem]:
    return list(tell([told], [TextFile(file)]))


def _samples(file: Path) -> Iterator[tuple[str, float]]:
    for family in text_string_to_metric_families(file.read_text(encoding="utf-8")):
        for sample in family.samples:
            assert sample.labels == {"source": SOURCE}
            yield sample.name, sample.value


def test_parser_of_prometheus_reads_every_metric_with_its_type(file: Path) -> None:
    assert _tell(file, run()) == []

    families = text_string_to_metric_families(file.read_text(encoding="utf-8"))
    told = {(s.name, str(f.type), f.documentation) for f in families for s in f.samples}
    assert told == {(m.name, m.kind.value, f"{m.meaning}.") for m in METRICS}


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
    assert "its counters begin anew" in str(problem)
    assert dict(_samples(file))["duesweep_runs_total"] == 1


def _runs(file: Path) -> dict[str, float]:
    found = figures_in(file.read_text(encoding="utf-8"))
    return {source: figures["duesweep_runs_total"] for source, figures in found.items()}


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


def test_folder_that_is_not_there_is_one_problem(tmp_path: Path) -> None:
    (problem,) = _tell(tmp_path / "absent" / "sales.prom", run())

    assert "No such file or directory" in problem.text
    assert problem.advice == "the run itself is not affected"
