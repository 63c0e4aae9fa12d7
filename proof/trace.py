"""Run `duesweep`, and write the modules of which functions are called.

`trace.py OUT BEGIN ARGUMENTS...`: OUT takes them, a name a line; BEGIN is the `MODULE:FUNCTION`
whose call and return begin and end the count, or empty. PYTHONPATH has the package. Code
that runs while a module is imported does not count.
"""

import runpy
import sys
import threading
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType

_PACKAGE = "duesweep"


class Modules:
    """Collects them, in each thread."""

    def __init__(self, begin: str | None) -> None:
        self.names: set[str] = set()
        self._begin = begin
        self._runs = begin is None
        self._importing = threading.local()

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """For `sys.setprofile`."""
        if event not in {"call", "return"}:
            return
        # By globals, because the generated methods of a dataclass have no file.
        module = str(getattr(frame.f_globals.get("__spec__"), "name", None))
        if module.partition(".")[0] != _PACKAGE:
            return
        # The body of a module or of a class is no function. The command runs in the body of
        # `__main__`.
        if not frame.f_code.co_flags & CO_OPTIMIZED:
            if frame.f_globals["__name__"] == "__main__":
                return
            depth = getattr(self._importing, "depth", 0)
            self._importing.depth = depth + (1 if event == "call" else -1)
            return
        if f"{module}:{frame.f_code.co_qualname}" == self._begin:
            self._runs = event == "call"
            self.names.add(module)
        elif self._runs and not getattr(self._importing, "depth", 0):
            self.names.add(module)


def main() -> None:
    """Ends with the command's exit code."""
    out, begin, *sys.argv[1:] = sys.argv[1:]
    modules = Modules(begin or None)
    threading.setprofile(modules.profile)
    sys.setprofile(modules.profile)
    try:
        runpy.run_module(_PACKAGE, run_name="__main__", alter_sys=True)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        Path(out).write_text("".join(f"{name}\n" for name in sorted(modules.names)), "utf-8")


if __name__ == "__main__":
    main()
