"""CPU time of a run by kind of process, from /proc. Unlike rates it hardly depends on a machine's
load.

A process counts with its children that have ended. So a backend of the server that ended during the
run counts as the server, and a Python worker that the JVM started as Python.
"""

import os
from dataclasses import dataclass, fields
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds of CPU: the database server's, Python's and the JVM's."""

    server: float = 0.0
    python: float = 0.0
    jvm: float = 0.0

    def __sub__(self, earlier: "CpuTimes") -> "CpuTimes":
        return CpuTimes(
            *(getattr(self, f.name) - getattr(earlier, f.name) for f in fields(CpuTimes))
        )

    @property
    def total(self) -> float:
        """The sum."""
        return self.server + self.python + self.jvm


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    is_java: bool
    own: float
    ended_children: float


def measure(server: int | None, *, with_jvm: bool = True) -> CpuTimes:
    """The CPU times until now of this process, its descendants and the server with this id. None: a
    server elsewhere, of which nothing is known. Without the JVM and its descendants in runs that do
    not use it: its idle Python workers end, and take what they have used with them.
    """
    processes = _read_processes()
    of_server = set() if server is None else _tree(server, processes)
    server_seconds = sum(processes[pid].own + processes[pid].ended_children for pid in of_server)
    python = jvm = 0.0
    own = _tree(os.getpid(), processes) - of_server
    if not with_jvm:
        jvms = [pid for pid in own if processes[pid].is_java]
        own = own.difference(*(_tree(pid, processes) for pid in jvms))
    for pid in own:
        process = processes[pid]
        if process.is_java:
            jvm += process.own
        else:
            python += process.own
        python += process.ended_children
    return CpuTimes(server_seconds, python, jvm)


def _tree(root: int, processes: dict[int, _Process]) -> set[int]:
    tree, size = {root} & processes.keys(), 0
    while len(tree) > size:
        size = len(tree)
        tree |= {pid for pid, process in processes.items() if process.parent in tree}
    return tree


def _read_processes() -> dict[int, _Process]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue  # it has just ended
        # The name, in parentheses, may hold spaces: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
        name, _, rest = text.partition("(")[2].rpartition(")")
        values = rest.split()
        user, system, children_user, children_system = (int(value) for value in values[11:15])
        found[int(folder.name)] = _Process(
            parent=int(values[1]),
            is_java=name == "java",
            own=(user + system) / _TICKS_PER_SECOND,
            ended_children=(children_user + children_system) / _TICKS_PER_SECOND,
        )
    return found
