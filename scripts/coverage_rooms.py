"""Run the tests under coverage.py, with all processes that they start, and print lines and branches per room.

    python -m scripts.coverage_rooms [options of pytest]      run the tests, then print
    python -m scripts.coverage_rooms --of FOLDER              print what the data files in a folder say

A process that is killed takes what it has seen with it, so brokers that fault tests kill count for less than they did.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOMS = ("broker", "client", "console", "balance", "protocol", "pipeline")
_CONFIG = """
[run]
branch = true
parallel = true
data_file = {folder}/.coverage
source_pkgs = ottla
patch = subprocess
sigterm = true
[report]
ignore_errors = true
"""


@dataclass(slots=True)
class Counts:
    """What there is in a room, and what was reached of it."""

    lines: int = 0
    lines_reached: int = 0
    branches: int = 0
    branches_reached: int = 0

    def row(self, room: str) -> str:
        """Return a line of the table."""
        lines = 100 * self.lines_reached / max(1, self.lines)
        branches = 100 * self.branches_reached / max(1, self.branches)
        return f"{room:28} {self.lines:7} {lines:7.1f} {self.branches:9} {branches:9.1f}"


def main(arguments: list[str]) -> int:
    """Run, combine, print; return pytest's exit code."""
    if arguments[:1] == ["--of"]:
        folder = Path(arguments[1]).absolute()
        _print(folder, _config(folder))
        return 0
    with tempfile.TemporaryDirectory(prefix="ottla-coverage-") as name:
        folder = Path(name)
        config = _config(folder)
        command = [sys.executable, "-m", "coverage", "run", f"--rcfile={config}", "-m", "pytest", *arguments]
        code = subprocess.run(command, check=False).returncode
        _print(folder, config)
    return code


def _config(folder: Path) -> Path:
    config = folder / "coveragerc"
    config.write_text(_CONFIG.format(folder=folder))
    return config


def _print(folder: Path, config: Path) -> None:
    report = folder / "report.json"
    coverage = (sys.executable, "-m", "coverage")
    subprocess.run([*coverage, "combine", "--quiet", f"--rcfile={config}"], check=False)
    subprocess.run([*coverage, "json", "--quiet", f"--rcfile={config}", "-o", str(report)], check=True)
    rooms: dict[str, Counts] = defaultdict(Counts)
    for path, file in json.loads(report.read_text())["files"].items():
        parts = Path(path).parts
        top = next((index for index, part in enumerate(parts) if part in ROOMS), None)
        if top is None:
            continue
        summary = file["summary"]
        room = "/".join(parts[top : top + 2]) if len(parts) > top + 2 else parts[top]
        for name in (room, f"{parts[top]} in all"):
            counts = rooms[name]
            counts.lines += summary["num_statements"]
            counts.lines_reached += summary["covered_lines"]
            counts.branches += summary["num_branches"]
            counts.branches_reached += summary["covered_branches"]
    heads = ("room", "lines", "% hit", "branches", "% hit")
    rows = ["{:28} {:>7} {:>7} {:>9} {:>9}".format(*heads), *(rooms[room].row(room) for room in sorted(rooms))]
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
