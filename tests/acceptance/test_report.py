"""`duesweep report`: the page, from real stores and ledgers."""

import os
import re
from html.parser import HTMLParser
from urllib.parse import unquote

from support.commands import run
from support.endpoint import ON_BOTH_SERVERS, Endpoint

pytestmark = ON_BOTH_SERVERS
_HOSTILE = "<script>alert('x')</script>\x1b[2J"


class _Page(HTMLParser):
    """Its texts, and the addresses that it would fetch."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self._texts: list[str] = []
        self.feed(html)
        self.text = " ".join(" ".join(self._texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        names = ("src", "href", "xlink:href", "action", "data")
        found = [value for name, value in attrs if name in names and value]
        self.fetched += [value for value in found if not value.startswith("#")]
        self.links += [value for value in found if value.startswith("#")]
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_data(self, data: str) -> None:
        self._texts.append(data)


def _report(endpoint: Endpoint, expected: int = 0, **settings: object) -> _Page:
    file = endpoint.folder / "report.html"
    assert endpoint.run("report", "--out", str(file), **settings).code == expected
    html = file.read_text(encoding="utf-8")
    assert "http:" not in re.sub(r"<!--.*?-->|http://www\.w3\.org/[\w/]+", "", html)
    assert "url(" not in html
    assert "@import" not in html
    page = _Page(html)
    assert page.fetched == []
    return page


def test_page_tells_what_was_swept_what_waits_and_what_needs_a_hand(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(3)
    endpoint.delay(_HOSTILE)
    assert endpoint.run("sweep", retry__max_attempts=1).code == 3
    endpoint.delay("Nowhere")
    assert endpoint.run("sweep").code == 3
    for seconds in (1_800, 7_200, 86_400 * 3, 86_400 * 30):
        endpoint.delay(due_in_seconds=seconds)
    assert endpoint.run("pause", "Ship*", "--reason", _HOSTILE).code == 0

    page = _report(endpoint)

    (group,) = re.findall(r"errors replay --group (\w+)", page.text)
    assert endpoint.document("errors", "list")["groups"][0]["group"] == group
    assert "script" not in page.tags
    assert "\x1b" not in page.text
    assert r"<script>alert('x')</script>\x1b[2J" in page.text
    assert f"duesweep resume 'Ship*' --config {endpoint.config_file()}" in page.text
    for number, what in ((3, "dispatched"), (1, "open errors"), (1, "in back-off")):
        assert f" {number} {what}" in page.text, what
    assert "Next hour: 1, day: 2, week: 3, later: 1." in page.text
    assert "2 of 2 sweeps" in page.text
    assert page.tags.count("svg") == 4
    assert "Needs attention: 2 faults, 1 warning." in page.text
    assert "Nowhere 1 up to 1 h: 1 1 in back-off" in page.text


def test_first_line_says_that_all_is_well(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay()
    assert endpoint.run("sweep", slo__lateness_seconds=3_600).code == 0

    ran = endpoint.run("report", "--out", "-", slo__lateness_seconds=3_600)

    text = _Page(ran.out).text
    assert "All is well." in text
    assert "done, dispatched 1 of 1" in text
    assert "oldest due message none is due" in text
    assert "3600 s, met by the last 1 dispatched message" in text
    assert "ledger up to date" in text


def test_reason_is_told_for_each_group_of_due_messages_that_is_not_delivered(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing", "Shipping", "Mails").delay_many(3)
    endpoint.delay_many(2, ["Shipping"])
    endpoint.delay("Mails")
    endpoint.delay("Nowhere", due_in_seconds=-7_200)
    endpoint.run("pause", "Ship*", "--reason", "stocktaking", "--until", "+1d")
    file = endpoint.config_file(slo__lateness_seconds=3_600)
    limit = '\n[[limit]]\ndestination = "Mails"\nper_second = 5\n'
    file.write_text(file.read_text(encoding="utf-8") + limit, encoding="utf-8")

    ran = run("report", "--config", str(file), "--out", "-")

    text = _Page(ran.out).text
    assert "Billing 3 up to 1 h: 3 3 for the next sweep" in text
    assert re.search(
        r"Shipping 2 up to 1 h: 2 2 paused: Ship\*, stocktaking \(.+?\), until 2", text
    )
    assert "1 of them limited: Mails, 5 messages a second at most" in text
    assert "Nowhere 1 up to 1 d: 1 1 would fail: There is no queue" in text
    assert "1 due message for Nowhere would fail: There is no queue" in text
    assert "longer than slo.lateness_seconds (3600 s)" in text
    assert "paused: 2 due messages for Shipping" in text


def test_destination_that_took_nothing_in_the_last_sweep_is_told_with_its_reason(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing", "Shipping").delay_many(4, ["Billing", "Shipping"])

    with endpoint.server.locked(endpoint.addresses.parse("Shipping")):
        impatient = {"breaker__trigger_seconds": 0, "timeouts__silence_seconds": 12}
        assert endpoint.run("sweep", **impatient).code == 4
        text = _report(endpoint).text

    assert "2 for the next sweep; the last one left some: " in text
    assert "the last sweep is incomplete: " in text


def test_without_a_ledger_the_rest_is_shown(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay()

    page = _report(endpoint)

    assert "The ledger could not be read: There is no ledger at" in page.text
    assert " 1 due now" in page.text


def test_lost_ledger_is_not_called_an_older_copy_and_no_sweep_is_to_create_it(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing").delay()
    assert endpoint.run("sweep").code == 0
    (endpoint.folder / "ledger").rename(endpoint.folder / "away")

    page = _report(endpoint)

    assert re.search("belongs to ledger [-0-9a-f]{36}, but no ledger is at ", page.text)
    assert "older copy" not in page.text
    assert "belongs to ledger" in (audited := endpoint.run("audit")).err
    assert "setup --rebind" in audited.err


def test_store_out_of_reach_leaves_what_the_ledger_tells(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay()
    assert endpoint.run("sweep", store__name="sales").code == 0
    nowhere = endpoint.server.unreached

    page = _report(endpoint, store__name="sales", store__dsn=nowhere)

    assert "The store could not be read: " in page.text
    assert " 1 dispatched" in page.text
    empty = str(endpoint.folder / "nothing")
    page = _report(endpoint, 4, store__name="sales", store__dsn=nowhere, ledger__root=empty)
    assert "The ledger could not be read: " in page.text


def test_fleet_is_one_page_and_wrong_settings_are_told_there(endpoint: Endpoint) -> None:
    sales = endpoint.named("Sales").set_up("Mails")
    assert sales.run("pause", "Ship*", "--reason", "stocktaking").code == 0
    file = endpoint.folder / "fleet.html"
    wrong = 'store.endpoint = "Wrong"\nstore.schema = 5'
    config = endpoint.fleet_file('store.endpoint = "Sales"', wrong)

    assert run("report", "--config", str(config), "--out", str(file)).code == 2

    page = _Page(file.read_text(encoding="utf-8"))
    text = page.text
    assert "duesweep: 2 endpoints" in text
    assert "Needs attention: 2 faults at 2 of 2 endpoints." in text
    assert "store.schema" in text
    # A page of each, which the table leads to, and the way back.
    assert len(page.ids) == 2
    assert {unquote(each) for each in page.links} == {"#", *(f"#{each}" for each in page.ids)}
    assert f"duesweep resume 'Ship*' --config {config} --endpoint Sales" in text


def test_the_same_facts_are_one_document_without_a_page(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay("Nowhere")
    endpoint.delay(due_in_seconds=7_200)
    endpoint.run("sweep")

    ran = run("report", "--json", "--config", str(endpoint.config_file()), "--out", "/absent/p")

    (found,) = ran.document["sources"]
    assert (ran.code, ran.document["exit_code"], ran.document["error"]) == (0, 0, None)
    assert (found["waiting"]["day"], found["history"]["failed"]) == (1, 1)
    assert found["history"]["sweeps"][0]["found"] == 1
    assert found["history"]["failing"][0]["destination"] == "Nowhere"
    (finding,) = found["findings"]
    assert (finding["check"], "Nowhere" in finding["about"]) == ("table-exists", True)


def test_file_that_cannot_be_written_is_told(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    absent = endpoint.folder / "absent" / "report.html"

    ran = endpoint.run("report", "--out", str(absent))

    assert ran.code == 2
    assert f"cannot be written into {absent}" in ran.err


def test_link_and_pipe_are_written_to_and_not_replaced(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    page, link, pipe = (endpoint.folder / name for name in ("page.html", "link.html", "pipe"))
    link.symlink_to(page)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    assert endpoint.run("report", "--out", str(link)).code == 0
    assert endpoint.run("report", "--out", str(pipe)).code == 0

    assert (link.is_symlink(), pipe.is_fifo()) == (True, True)
    with os.fdopen(reader, "rb") as piped:
        for text in (page.read_text("utf-8"), piped.read().decode()):
            assert text.startswith("<!doctype html>")


def test_page_that_only_its_owner_may_read_stays_so(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    page = endpoint.folder / "page.html"
    page.touch(0o600)

    assert endpoint.run("report", "--out", str(page)).code == 0

    assert page.stat().st_mode & 0o777 == 0o600
    assert page.read_text("utf-8").startswith("<!doctype html>")


def test_page_on_standard_output_is_all_there_is(endpoint: Endpoint) -> None:
    ran = endpoint.set_up("Billing").run("report", "--out", "-")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("<!doctype html>")
    assert ran.out.rstrip().endswith("</html>")
