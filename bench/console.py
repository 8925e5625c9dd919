"""What open pages of the console cost a broker: the load of `bench.broker` with none and with five of them, by turns.

    python -m bench.console [--quick] [--rounds N] [--only TEXT] [--pages N] [--json FILE]

The console is one process beside the broker. Its pages are streams of events, as browsers have them. All of them share
the processors of this machine, so throughput and latency include what the console itself takes; processor time is that
of the broker alone.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.support.contender import HOST, Contender, Ottla
from bench.support.report import Results, machine
from bench.support.rows import FULL, QUICK, Row, Scale, Values, at_least, at_most, load_rows, topic_for
from bench.support.rows import latency as paced
from bench.support.usage import cpu_seconds, memory_mb
from tests.kit.broker_process import clean_environment
from tests.kit.guarded_process import GuardedProcess

from ottla.client.local_cluster.ports import free_port

_OPEN, _CLOSED = "pages", "none"
_START_SECONDS_MAX = 60.0
_IDLE_SECONDS = 20.0
_ROWS = ("produce 1 KB, default batches", "consume 1 KB", "one record per request")


class Console:
    """`ottla console` for a contender, and pages of it that can be opened and closed."""

    def __init__(self, contender: Contender, folder: Path) -> None:
        self._port = free_port(HOST)
        self._log = folder / "console.log"
        command = [sys.executable, "-P", "-m", "ottla.console", "-b", contender.bootstrap, "--port", str(self._port)]
        self._process = GuardedProcess(command, self._log, clean_environment())
        if not self._process.comes_up(lambda: "http://" in self._log.read_text(errors="replace"), _START_SECONDS_MAX):
            raise RuntimeError(f"the console does not start:\n{self._log.read_text(errors='replace')[-2000:]}")

    @property
    def pid(self) -> int:
        """The process of the console."""
        return self._process.pid

    @contextmanager
    def open_pages(self, count: int) -> Iterator[None]:
        """Keep pages open meanwhile."""
        if not count:
            yield
            return
        command = [sys.executable, "-m", "bench.support.console_pages", f"http://localhost:{self._port}", str(count)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as pages:
            assert pages.stdout is not None
            try:
                if pages.stdout.readline() != "open\n":
                    raise RuntimeError("the pages of the console do not open")
                yield
                if pages.poll() is not None:
                    raise RuntimeError("a page of the console was closed")
            finally:
                pages.kill()

    def stop(self) -> None:
        """End the console."""
        self._process.end(signal.SIGTERM)


def rows_of(scale: Scale) -> list[Row]:
    """The rows of the broker's bench that show what is sensitive, and what idle pages cost."""
    goals = {"MB/s": at_least(0.98), "requests/s": at_least(0.98), "p99 ms": at_most(1.02)}
    chosen = [row for row in load_rows(scale) if row.name.startswith(_ROWS)]
    rows = [Row(row.name, row.measure, goals) for row in chosen]
    rows.append(Row("end to end, 500 records/s", _latency(scale), goals))
    rows.append(Row("nothing else to do", _idle, {}))
    return rows


def _latency(scale: Scale) -> Callable[[Contender], Values]:
    def measure(contender: Contender) -> Values:
        with topic_for(contender) as topic:
            before, begun = cpu_seconds(contender.pids), time.perf_counter()
            values = paced(contender, topic, "--count", str(scale.latency_records))
            share = (cpu_seconds(contender.pids) - before) / (time.perf_counter() - begun)
            return {**values, "CPU %": share * 100}

    return measure


def _idle(contender: Contender) -> Values:
    before, begun = cpu_seconds(contender.pids), time.perf_counter()
    time.sleep(_IDLE_SECONDS)
    return {"CPU %": (cpu_seconds(contender.pids) - before) / (time.perf_counter() - begun) * 100}


def main() -> None:
    """Read the command line, measure by turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small amounts and one round, to try it out")
    parser.add_argument("--rounds", type=int, help="how often each row is measured")
    parser.add_argument("--only", metavar="TEXT", help="only rows with this in their names")
    parser.add_argument("--pages", type=int, default=5, help="how many pages are open")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to a file, too")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scale = QUICK if options.quick else FULL
    results = Results([_OPEN, _CLOSED])
    print("  ".join(f"{key}: {value}" for key, value in machine().items()), flush=True)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        contender = Ottla(Path(folder) / "ottla")
        console: Console | None = None
        try:
            contender.start()
            console = Console(contender, Path(folder))
            rows = [row for row in rows_of(scale) if options.only is None or options.only in row.name]
            # The first load of a process is slower than the next.
            for row in rows:
                row.measure(contender)
            for number in range(options.rounds or scale.rounds):
                for row in rows:
                    _measure(row, contender, console, results, number, options.pages)
            print(f"console: {memory_mb([console.pid], 'VmHWM'):.0f} MB resident at most")
        finally:
            if console is not None:
                console.stop()
            contender.stop()
    print(f"\n{results.table()}\n\nMedians over the rounds; the ratio is {options.pages} open pages to none.")
    if options.json:
        results.write_json(options.json)


def _measure(row: Row, contender: Contender, console: Console, results: Results, number: int, pages: int) -> None:
    turns = ((_CLOSED, 0), (_OPEN, pages))
    for name, count in turns if number % 2 == 0 else reversed(turns):
        with console.open_pages(count):
            values = row.measure(contender)
        results.add(row, name, values)
        said = ", ".join(f"{value:,.3g} {metric}" for metric, value in values.items())
        print(f"round {number + 1}  {name:6}  {row.name}: {said}", flush=True)


if __name__ == "__main__":
    main()
