"""The question that a task answers about the machine that it runs on.

duesweep may be missing on that machine. So the question travels as code (functions in functions),
and uses plain values only.
"""

from collections.abc import Callable

from duesweep.config.adapters import Needs


def question(needs: Needs, seconds: float) -> Callable[[int], str]:
    """A function that returns JSON: host, versions, and why something needed cannot be loaded. It
    takes `seconds`, so that tasks reach all executors.
    """
    load = _loader()
    wanted = [("module", name) for name in needs.modules]
    wanted += [("driver", name) for name in needs.odbc_drivers]

    def answer(_: int) -> str:
        import json  # noqa: PLC0415
        import platform  # noqa: PLC0415
        import sys  # noqa: PLC0415
        import time  # noqa: PLC0415

        failures = {}
        for kind, name in wanted:
            try:
                load(kind, name)
            except Exception as error:  # noqa: BLE001 - whatever a broken package raises
                failures[name or "the ODBC driver"] = f"{type(error).__name__}: {error}"
        time.sleep(seconds)
        found = {
            "host": platform.node(),
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            "duesweep": getattr(sys.modules.get("duesweep"), "__version__", None),
            "failures": failures,
        }
        return json.dumps(found, sort_keys=True)

    return answer


def _loader() -> Callable[[str, str], None]:
    def load(kind: str, name: str) -> None:
        import ctypes  # noqa: PLC0415
        from importlib import import_module  # noqa: PLC0415, TID251 - of drivers

        if name == "pyodbc":
            import_module("duesweep.drivers.sqlserver.dsn").odbc()
        elif kind == "module":
            import_module(name)
        elif not name:
            library = import_module("duesweep.drivers.sqlserver.dsn")
            ctypes.CDLL(library.driver_library())
        elif "/" in name:
            ctypes.CDLL(name)
        elif name not in import_module("pyodbc").drivers():
            raise LookupError("unixODBC knows no driver of this name")

    return load
