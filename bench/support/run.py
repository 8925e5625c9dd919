"""Runs the rows, every contender in turn within each round, so that what disturbs one disturbs the other as well."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.support.contender import Contender
from bench.support.report import NOTE, Results, machine
from bench.support.rows import FULL, IDLE, LOADED, QUICK, Row, Scale, load_rows, start_rows, warm_up

SETTLE_SECONDS = 3.0


def run(contenders: Sequence[type[Contender]], description: str | None) -> None:
    """Read the command line, measure, and print the table."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small amounts and one round, to try it out")
    parser.add_argument("--rounds", type=int, help="how often each row is measured")
    parser.add_argument("--only", metavar="TEXT", help="only rows with this in their names")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to a file, too")
    options = parser.parse_args()
    # Ended from outside, everything that was started is stopped as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scale = QUICK if options.quick else FULL
    rounds = options.rounds or scale.rounds
    results = Results([contender.name for contender in contenders])
    print("  ".join(f"{key}: {value}" for key, value in machine().items()), flush=True)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, ExitStack() as cleanup:
        measured = [contender(Path(folder) / contender.name) for contender in contenders]
        for contender in measured:
            cleanup.callback(contender.stop)
        measure_starts(measured, results, options.rounds or scale.starts, options.only)
        measure_loads(measured, results, scale, rounds, options.only)
    print(f"\n{results.table()}\n\n{NOTE}")
    if options.json:
        results.write_json(options.json)


def measure_starts(contenders: list[Contender], results: Results, rounds: int, only: str | None) -> None:
    """Start each contender again and again."""
    for number in range(rounds):
        for row in _chosen(start_rows(), only):
            measure(row, contenders, results, number)


def measure_loads(contenders: list[Contender], results: Results, scale: Scale, rounds: int, only: str | None) -> None:
    """Start all contenders once, and load one after the other."""
    rows = _chosen(load_rows(scale, with_kcat=shutil.which("kcat") is not None), only)
    if not rows and not _chosen([IDLE, LOADED], only):
        return
    for contender in contenders:
        contender.start()
    time.sleep(SETTLE_SECONDS)
    measure(IDLE, contenders, results, 0)
    for contender in contenders:
        warm_up(contender, scale)
    for number in range(rounds):
        for row in rows:
            measure(row, contenders, results, number)
    measure(LOADED, contenders, results, 0)


def measure(row: Row, contenders: Sequence[Contender], results: Results, number: int) -> None:
    """Measure all contenders in one round, taking turns in who is first."""
    for contender in contenders if number % 2 == 0 else reversed(contenders):
        values = row.measure(contender)
        results.add(row, contender.name, values)
        said = ", ".join(f"{value:,.3g} {metric}" for metric, value in values.items())
        print(f"round {number + 1}  {contender.name:6}  {row.name}: {said}", flush=True)


def _chosen(rows: list[Row], only: str | None) -> list[Row]:
    return [row for row in rows if only is None or only in row.name]
