"""What SIGHUP does to `watch`: the configuration is read again."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from duesweep import config as configuration
from duesweep.config.adapters.endpoint import sweep_context
from duesweep.core.errors import DuesweepError, make_printable
from duesweep.fleet.members import Member, members_of
from duesweep.watch.tick import Ticker

_log = structlog.get_logger(__name__)

_RESTART = "restart the watcher to use them"


def reload(
    members: list[Member],
    tickers: Sequence[Ticker],
    files: Sequence[Path],
    overrides: Sequence[str],
) -> bool | None:
    """Read the configuration again, and put what it says into `members` and their `tickers`. What
    is invalid is logged, and its old settings stay in force. Returns False if the configuration has
    changes that only a restart brings into force, and None if it cannot be read.
    """
    try:
        found, failures = members_of(configuration.settings_of(files) or [None], overrides)
    except DuesweepError as error:
        _tell_failure(", ".join(each.source for each in members), error)
        return None
    for failure in failures:
        _tell_failure(failure.source, failure.error)
    new = {each.source: each for each in found}
    if len(members) == len(found) == 1 and not failures:
        # Its name may be another one in the file.
        new = {members[0].source: found[0]}
    is_complete = True
    for number, member in enumerate(members):
        if member.source not in new:
            continue
        try:
            config, not_changed = configuration.keep_fixed(new[member.source].config, member.config)
            context = sweep_context(config)
        except DuesweepError as error:
            _tell_failure(member.source, error)
            is_complete = False
            continue
        tickers[number].use(context)
        members[number] = replace(member, config=config, context=context)
        is_complete = is_complete and not not_changed
        advice = {"not_changed": not_changed, "advice": _RESTART} if not_changed else {}
        _log.info("reloaded", source=member.source, **advice)
    old = {each.source for each in members}
    added, removed = new.keys() - old, set() if failures else old - new.keys()
    if added or removed:
        _log.warning(
            "endpoints_not_changed", added=sorted(added), removed=sorted(removed), advice=_RESTART
        )
    return is_complete and not added and not removed if found else None


def _tell_failure(source: str, error: DuesweepError) -> None:
    _log.error(
        "reload_failed",
        source=source,
        error=make_printable(str(error)),
        advice="the old settings stay in force; correct the file, and send SIGHUP again",
    )
