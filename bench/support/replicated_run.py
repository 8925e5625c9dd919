"""Runs rows of a cluster: all contenders run all the time, and one after the other is under load."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.support.contender import Contender
from bench.support.replicated_rows import BROKERS, IDLE, LOADED
from bench.support.report import NOTE, Results, machine
from bench.support.rows import Row
from bench.support.run import SETTLE_SECONDS, measure, warm_up


def run_replicated(
    contenders: Sequence[type[Contender]],
    rows: Sequence[Row],
    options: argparse.Namespace,
    limit: type[Contender] | None = None,
) -> None:
    """Measure three brokers of each kind and print the table; `limit` is the kind that shows what is possible."""
    # Ended from outside, everything that was started is stopped as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    results = Results([contender.name for contender in contenders], limit.name if limit else None)
    print("  ".join(f"{key}: {value}" for key, value in machine().items()), flush=True)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, ExitStack() as cleanup:
        measured = [contender(Path(folder) / contender.name, BROKERS) for contender in contenders]
        for contender in measured:
            cleanup.callback(contender.stop)
            contender.start()
        time.sleep(SETTLE_SECONDS)
        measure(IDLE, measured, results, 0)
        rows = [row for row in rows if options.only is None or options.only in row.name]
        warm_up(rows, measured, results)
        for number in range(options.rounds):
            for row in rows:
                measure(row, measured, results, number)
        measure(LOADED, measured, results, 0)
    print(f"\n{results.table()}\n\n{NOTE}")
    if options.json:
        results.write_json(options.json)
