"""What pages say of benchmarks can be typed."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
_COMMAND = re.compile(r"(?:`|MASTER=\S+ )bench/run ([a-z][^`\n]+)")
# `| name | question | peer | sizes |`: name and sizes are a command.
_ROW = re.compile(r"^\| `(\w+)` \|.*\| (?:`([^`]+)` )?\|$", re.MULTILINE)
_PARSE = """
import json, runpy, shlex, sys
sys.path.insert(0, "bench")
names = runpy.run_path("bench/__main__.py")
for command in json.load(sys.stdin):
    name, *options = shlex.split(command)
    names["parser_of"](name).parse_args(options)
print(json.dumps(names["NAMES"]))
"""


def test_commands_in_pages_are_those_of_the_benchmarks() -> None:
    readme = (ROOT / "bench" / "README.md").read_text("utf-8")
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "bench" / "README.md"]
    rows = {name: f"{name} {sizes}" for name, sizes in _ROW.findall(readme)}
    told = {
        command.rstrip() for page in pages for command in _COMMAND.findall(page.read_text("utf-8"))
    }
    commands = [*rows.values(), *told]

    ran = subprocess.run(
        [sys.executable, "-c", _PARSE],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == list(rows)
    assert "throughput --rows 200000" in told
