"""Run `duesweep`, and write which functions of it are called.

`trace.py OUT ARGUMENTS...`: OUT takes a JSON object with lists of MODULE:FUNCTION. `sweep` is
`Duesweep.sweep()` of the configuration in this folder: `sweep` has its functions, and `slice` the
ones of its slice. Any other command has them in `all`. PYTHONPATH has the package. Code that runs
while a module is imported does not count.
"""

import json
import runpy
import sys
import threading
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType

_PACKAGE = "duesweep"
_SLICES = {f"duesweep.sweep.slice:{name}" for name in ("Slice.work", "dispatch_slice")}


class Functions:
    """Collects them, in each thread."""

    def __init__(self) -> None:
        self.all: set[str] = set()
        self.slice: set[str] = set()
        self._slices = 0
        self._importing = threading.local()

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """For `sys.setprofile`."""
        if event not in {"call", "return"}:
            return
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
        name = f"{module}:{frame.f_code.co_qualname}"
        if name in _SLICES:
            self._slices += 1 if event == "call" else -1
        is_generated = frame.f_code.co_filename.startswith("<")
        is_named = not frame.f_code.co_name.startswith("<")
        if event == "call" and is_named and not is_generated and not self._imports:
            self.all.add(name)
            if self._slices or name in _SLICES:
                self.slice.add(name)

    @property
    def _imports(self) -> bool:
        return getattr(self._importing, "depth", 0) > 0

    def follow(self) -> None:
        """Follow this thread, and new ones."""
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)


def main() -> None:
    """Ends with the command's exit code."""
    out, *sys.argv[1:] = sys.argv[1:]
    functions = Functions()
    found = {"all": functions.all}
    try:
        if sys.argv[1:] == ["sweep"]:
            from duesweep import Duesweep, load_config  # noqa: PLC0415 - the tree of PYTHONPATH

            found = {"sweep": functions.all, "slice": functions.slice}
            endpoint = Duesweep(load_config())
            functions.follow()
            print(endpoint.sweep())
        else:
            functions.follow()
            runpy.run_module(_PACKAGE, run_name="__main__", alter_sys=True)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        text = json.dumps({name: sorted(called) for name, called in found.items()})
        Path(out).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
