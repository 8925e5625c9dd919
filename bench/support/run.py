"""Runs the rows, every contender in turn within each round, so that what disturbs one disturbs the other as well."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.support.contender import Contender
from bench.support.report import NOTE, Results, machine
from bench.support.rows import FULL, IDLE, LOADED, QUICK, Row, Scale, Values, load_rows, start_rows
from bench.support.usage import forget_peak

SETTLE_SECONDS = 3.0
WARM_UPS_MAX = 8
# How far two values in a row may be apart when the contender is warm.
AGREEMENT = 0.1


def run(contenders: Sequence[type[Contender]], description: str | None) -> None:
    """Read the command line, measure, and print the table."""
    run_one_broker(contenders, arguments(description).parse_args())


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of `run_one_broker`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small amounts and one round, to try it out")
    parser.add_argument("--rounds", type=int, help="how often each row is measured")
    parser.add_argument("--only", metavar="TEXT", help="only rows with this in their names")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to a file, too")
    return parser


def run_one_broker(
    contenders: Sequence[type[Contender]], options: argparse.Namespace, limit: type[Contender] | None = None
) -> None:
    """Measure one broker of each kind and print the table; `limit` is the kind that shows what is possible."""
    # Ended from outside, everything that was started is stopped as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scale = QUICK if options.quick else FULL
    rounds = options.rounds or scale.rounds
    results = Results([contender.name for contender in contenders], limit.name if limit else None)
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
    rows = _chosen(load_rows(scale), only)
    if not rows and not _chosen([IDLE, LOADED], only):
        return
    for contender in contenders:
        contender.start()
    time.sleep(SETTLE_SECONDS)
    measure(IDLE, contenders, results, 0)
    warm_up(rows, contenders, results, scale.warm_ups_max)
    for number in range(rounds):
        for row in rows:
            measure(row, contenders, results, number)
    measure(LOADED, contenders, results, 0)


def warm_up(
    rows: Sequence[Row], contenders: Sequence[Contender], results: Results, times_max: int = WARM_UPS_MAX
) -> None:
    """Measure each row until two values in a row agree, and count peaks from here on.

    A JVM gets faster for minutes: what it does at first is not what it does later. A row that never becomes steady is
    marked in the table.
    """
    for row in rows:
        for contender in contenders:
            if not becomes_steady(f"{contender.name:6}  {row.name}", partial(row.measure, contender), 1, times_max):
                results.note_unsteady(row, contender.name)
    for contender in contenders:
        forget_peak(contender.pids)


def becomes_steady(name: str, measure_once: Callable[[], Values], compared: int, times_max: int = WARM_UPS_MAX) -> bool:
    """Measure until the first `compared` values agree with those before; say whether they did in so many times."""
    last: list[float] = []
    for number in range(times_max):
        values = measure_once()
        print(f"warm-up {number + 1}  {name}: {_said(values)}", flush=True)
        latest = list(values.values())[:compared]
        if last and all(abs(a - b) <= AGREEMENT * max(a, b) for a, b in zip(latest, last, strict=True)):
            return True
        last = latest
    return False


def _said(values: Values) -> str:
    return ", ".join(f"{value:,.3g} {metric}" for metric, value in values.items())


def measure(row: Row, contenders: Sequence[Contender], results: Results, number: int) -> None:
    """Measure all contenders in one round, taking turns in who is first."""
    for contender in contenders if number % 2 == 0 else reversed(contenders):
        values = row.measure(contender)
        results.add(row, contender.name, values)
        print(f"round {number + 1}  {contender.name:6}  {row.name}: {_said(values)}", flush=True)


def _chosen(rows: list[Row], only: str | None) -> list[Row]:
    return [row for row in rows if only is None or only in row.name]
