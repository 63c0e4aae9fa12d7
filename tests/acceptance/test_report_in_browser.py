"""The report in a real browser: nothing is cut off, and everyone can read and copy it."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from duesweep.core.finding import Check, fault, warning
from duesweep.core.held_back import HeldBack, Holder
from duesweep.core.policy import Pause
from duesweep.operations.exhausted import ErrorExample, ErrorGroup
from duesweep.operations.status import InBackOff, Status, Step
from duesweep.report.page import render
from support.services import is_missing
from support.statuses import AGO, NOW, SWEEP, due, history, status, waiting

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
_PHONE, _DESK = 390, 1_280
# Both sides of the style sheet's one limit, and a tablet.
_WIDTHS = (320, _PHONE, 700, 1_100, 1_101, _DESK, 1_920)
# As long as names of queues may be, with and without places where a line may end.
_LONG = "Reminders." * 20
_UNBROKEN = "Warehouse" * 22 + "aa"
_REASON = f'There is no queue table "acme"."{_UNBROKEN}"'
_PLOT = [Step(f"23 Nov {hour:02}:{minute:02}", hour) for hour in range(24) for minute in (0, 30)]

# Each element whose text is wider than its room, or that leaves the window.
_CUT_OFF = """() => {
  const found = [], root = document.documentElement;
  const tell = (one, what) => found.push(`${what}: <${one.tagName} class="${one.className}"> `
    + one.textContent.trim().slice(0, 60));
  if (root.scrollWidth > root.clientWidth) tell(root, `page of ${root.scrollWidth} px`);
  for (const one of document.querySelectorAll('body *')) {
    if (!one.checkVisibility() || one.closest('svg')) continue;
    const style = getComputedStyle(one), box = one.getBoundingClientRect();
    if (style.display !== 'inline' && one.scrollWidth > one.clientWidth + 1)
      tell(one, `${one.scrollWidth} px in ${one.clientWidth}`);
    if (box.width && (box.right > root.clientWidth + 1 || box.left < -1)) tell(one, 'outside');
  }
  return found;
}"""
# Words of our own that were broken in the middle: as many lines as letters is not readable.
_NARROW = """() => [...document.querySelectorAll('td')].filter(one => one.checkVisibility()
    && one.textContent.trim() && one.clientWidth < 24 && one.textContent.trim().length > 3)
  .map(one => `${one.clientWidth} px: ${one.textContent.trim().slice(0, 60)}`)"""
_BUSY = {
    "waiting": waiting(
        due=12_345,
        looked_at=10_000,
        oldest_due=AGO,
        oldest_eligible=AGO,
        pauses=[Pause(f"{_LONG[:150]}*", AGO, None, "ops@warehouse", "stocktaking " * 20)],
        held_back=[HeldBack(Holder.PAUSED, "Ship*", "stocktaking " * 20, 1_234, NOW)],
        destinations=[
            due(_UNBROKEN, eligible=288, problem=_REASON),
            due(_LONG, eligible=210, problem=_REASON),
            due("Shipping", paused=1_234, late=dict.fromkeys(("up_to_1_min", "up_to_1_h"), 1_234)),
            due("Billing", eligible=3, back_off=2, limited=1),
        ],
        hours=_PLOT,
        unsettled=2,
        unsettled_since=AGO,
    ),
    "history": history(
        sweeps=[
            SWEEP._replace(found=1_234_567, left=1_234_567, outcome="incomplete", reason=_REASON),
            SWEEP._replace(dispatched=1_234_567, lateness_p95_ms=123_456_789),
        ],
        dispatched=123_456_789,
        failed=12_345,
        failing=[InBackOff("duesweep.core.errors.QueueNotFoundError", _LONG, 2, AGO, _REASON)],
        errors=[
            ErrorGroup(
                group="3cbea384",
                error_class="duesweep.core.errors.QueueNotFoundError",
                destination=_UNBROKEN,
                message_type="Sales.Due",
                count=4,
                open=4,
                replayed=0,
                discarded=0,
                first_failed_at=AGO,
                last_failed_at=NOW,
                example=ErrorExample("id", "key", "sweep", _REASON),
            )
        ],
        rate=_PLOT,
        backlog=_PLOT,
    ),
    "findings": [
        fault(Check.TABLE_EXISTS, f'"acme"."{_UNBROKEN}"', _REASON, "Run the command `setup`"),
        warning(Check.SPARK_TASK_RETRIES, "spark.task.maxFailures", "it is 1", "set it"),
    ],
    "problems": [f"The ledger could not be read: there is none at /srv/{_UNBROKEN}"],
    "objective_seconds": 60.0,
    "options": ("--config", f"/srv/{_UNBROKEN}.toml", "--endpoint", "Sales.Orders"),
}
_SITES = {
    "one": [status("acme/public.Sales.Orders.Delayed", **_BUSY)],
    "fleet": [
        status(_UNBROKEN, **_BUSY),
        status(_LONG, waiting=None, problems=[_REASON]),
        *(status(f"acme/public.Sales.Orders.{number}.Delayed") for number in range(8)),
    ],
}


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Debian's Chromium."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - most tests do without

    if _CHROMIUM is None:
        is_missing("Chromium")
    with sync_playwright() as playwright:
        # Its sandbox does not start for root.
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: "Browser", request: pytest.FixtureRequest) -> "Iterator[Page]":
    """A window, without a network, whose console stays empty."""
    is_dark = getattr(request, "param", "light") == "dark"
    context = browser.new_context(color_scheme="dark" if is_dark else "light", offline=True)
    page, told = context.new_page(), list[str]()
    page.on("console", lambda line: told.append(line.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("requestfailed", lambda asked: told.append(asked.url))
    yield page
    context.close()
    assert told == []


def _show(page: "Page", folder: Path, found: Sequence[Status], **options: Any) -> None:
    file = folder / "report.html"
    file.write_text(render(found, NOW, **options), encoding="utf-8")
    page.goto(file.as_uri())


@pytest.mark.parametrize("name", _SITES)
def test_nothing_is_cut_off_at_any_width(page: "Page", tmp_path: Path, name: str) -> None:
    _show(page, tmp_path, _SITES[name])
    if name == "fleet":
        page.get_by_role("link", name=_UNBROKEN).click()
        assert page.get_by_text("288 would fail").is_visible()

    for is_page_of_one in (True, False):
        for width in _WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate(_CUT_OFF) == [], width
            assert page.evaluate(_NARROW) == [], width
        if name == "fleet" and is_page_of_one:
            page.get_by_role("link", name="all endpoints").and_(page.locator(":visible")).click()
            assert page.get_by_role("link", name=_UNBROKEN).is_visible()


# A rule takes as long as the page is large, so that not all is combined with all.
@pytest.mark.parametrize(
    ("name", "width", "page"),
    [
        ("one", _PHONE, "light"),
        ("one", _DESK, "dark"),
        ("fleet", _PHONE, "dark"),
        ("fleet", _DESK, "light"),
    ],
    indirect=["page"],
)
def test_rules_for_pages_that_everyone_can_read_hold(
    page: "Page", tmp_path: Path, name: str, width: int
) -> None:
    from axe_playwright_python.sync_playwright import Axe  # noqa: PLC0415 - most tests do without

    page.set_viewport_size({"width": width, "height": 900})
    _show(page, tmp_path, _SITES[name])

    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]

    told = [(one["id"], one["impact"], one["nodes"][0]["html"][:200]) for one in found]
    assert told == []


@pytest.mark.parametrize("width", [_PHONE, _DESK])
def test_one_click_marks_a_command_and_nothing_else(
    page: "Page", tmp_path: Path, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    _show(page, tmp_path, _SITES["one"])
    (wanted,) = [text for text in page.locator("code").all_text_contents() if "replay" in text]
    assert wanted.startswith("duesweep errors replay --group 3cbea384 --reason '…' --config /srv/W")

    page.get_by_text("errors replay").click()

    assert page.evaluate("() => getSelection().toString()") == wanted
