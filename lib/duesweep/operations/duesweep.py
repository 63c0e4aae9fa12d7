"""The operations on an endpoint, for Python: the table of contents of `operations/`.

Nothing is printed, and no question is asked. All errors are `DuesweepError`s.
"""

from collections.abc import Callable, Mapping
from importlib import import_module  # noqa: TID251 - of the methods below
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duesweep import config as configuration
from duesweep.config import Config
from duesweep.operations.endpoint import Endpoint, Stop

if TYPE_CHECKING:
    import duesweep.operations.audit as _audit
    import duesweep.operations.change as _change
    import duesweep.operations.doctor as _doctor
    import duesweep.operations.exhausted as _exhausted
    import duesweep.operations.handover as _handover
    import duesweep.operations.look as _look
    import duesweep.operations.maintain as _maintain
    import duesweep.operations.messages as _messages
    import duesweep.operations.opening as _opening
    import duesweep.operations.pauses as _pauses
    import duesweep.operations.replay as _replay
    import duesweep.operations.restore as _restore
    import duesweep.operations.run as _run
    import duesweep.operations.setup as _setup
    import duesweep.operations.status as _status
else:

    class _Method:
        """A function of another file, which is imported when the method is used: a process does
        one of these things, and starts often.
        """

        def __init__(self, file: str, function: str) -> None:
            self._file, self._function = file, function

        def __set_name__(self, owner: type, name: str) -> None:
            self._owner, self._name = owner, name

        def __get__(self, one: object, owner: type) -> Callable[..., Any]:
            module = import_module(f"duesweep.operations.{self._file}")
            function = getattr(module, self._function)
            # Not in `owner`, which may be a subclass with a method of its own that called this.
            setattr(self._owner, self._name, function)
            return function.__get__(one, owner)

    class _File:
        """A file of `operations/`, not imported yet."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, function: str) -> _Method:
            return _Method(self._name, function)

    _audit, _change, _doctor = _File("audit"), _File("change"), _File("doctor")
    _exhausted, _handover, _look = _File("exhausted"), _File("handover"), _File("look")
    _maintain, _messages, _opening = _File("maintain"), _File("messages"), _File("opening")
    _pauses, _replay, _restore = _File("pauses"), _File("replay"), _File("restore")
    _run, _setup, _status = _File("run"), _File("setup"), _File("status")

__all__ = ["Duesweep", "Stop", "load_config"]


class Duesweep(Endpoint):
    """The operations on the endpoint of a configuration. `spark` is the session to use, also
    one of Spark Connect; None: the existing one, or if Spark is needed, a new one.
    `options` name it on a command line.

    A command that changes messages is two methods: the choice returns a value that can be shown,
    and the act takes that value, or a filter. `stop` ends an act between two batches.
    """

    # Each is the function of that name in that file, whose first argument is this endpoint.
    sweep = _run.sweep
    plan = _look.plan
    handover = _handover.handover
    check_handover = _handover.check_handover
    preview_handover = _handover.preview_handover
    abort_handover = _handover.abort_handover

    list = _messages.list_messages
    show = _messages.show
    choose = _change.choose
    cancel = _change.cancel
    reschedule = _change.reschedule
    choose_cancelled = _restore.choose_cancelled
    restore = _restore.restore
    pause = _pauses.pause
    resume = _pauses.resume
    paused = _pauses.paused

    error_groups = _exhausted.error_groups
    errors = _exhausted.errors
    show_errors = _exhausted.show_errors
    choose_errors = _replay.choose_errors
    replay = _replay.replay
    discard = _replay.discard

    setup = _setup.set_up
    setup_script = _setup.setup_script
    audit = _audit.audit
    doctor = _doctor.doctor
    maintain = _maintain.maintain
    status = _status.status
    table = _opening.table


def load_config(
    file: str | PathLike[str] | Mapping[str, object] | None = None,
    overrides: Mapping[str, object] | None = None,
    endpoint: str | None = None,
) -> Config:
    """The configuration of a TOML file, by default `duesweep.toml` if it is there; of one with
    several endpoints, the settings of `endpoint`. Or, in place of a file, of a mapping with
    its sections: `{"store": {"dsn": dsn, ...}, ...}`. The environment overrides it, and `overrides`
    as in `{"sweep.batch_rows": 500}` override both; None is as if it were not given.

    Raises `ConfigError` for its faults.
    """
    given = [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in (overrides or {}).items()
        if value is not None
    ]
    if isinstance(file, Mapping):
        return configuration.load(configuration.EndpointSettings("", file), given)
    return configuration.load(None if file is None else Path(file), given, endpoint)
