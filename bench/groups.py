"""Consumer groups: how soon a new one reads, what many cost, and how soon another coordinator knows them.

    python -m bench.groups [--groups N] [--offsets N] [--seconds S] [--json FILE]

Goals: a consumer of a new group has its first record 300 ms after it asked, with one broker and with three; 1,000
groups of three members, each with a heartbeat every 3 s, take less than 40 % of a core; and when the coordinator of
1,000,000 committed offsets is killed, the next one tells them less than 20 s after it was made leader.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.support.group_run import GOALS, measure_failover, measure_first_record, measure_members
from bench.support.report import machine

GROUPS = 1_000
OFFSETS = 1_000_000
SECONDS = 30.0


def main() -> None:
    """Read the command line, measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=GROUPS, help="with three members each")
    parser.add_argument("--offsets", type=int, default=OFFSETS, help="a thousand in each group")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of heartbeats")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to a file, too")
    options = parser.parse_args()
    # Ended from outside, everything that was started is stopped as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print("  ".join(f"{key}: {value}" for key, value in machine().items()), flush=True)
    runs: dict[str, Callable[[Path], dict[str, float]]] = {
        "a new group, one broker": lambda folder: measure_first_record(folder, 1),
        "a new group, three brokers": lambda folder: measure_first_record(folder, 3),
        "many members": lambda folder: measure_members(folder, options.groups, options.seconds),
        "many offsets": lambda folder: measure_failover(folder, options.offsets // 1000),
    }
    measured = {}
    for name, measure in runs.items():
        print(f"\n{name}", flush=True)
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
            values = measured[name] = measure(Path(folder) / "ottla")
        for label, value in values.items():
            goal = GOALS.get(label)
            verdict = "" if goal is None else f"   goal under {goal:g}: {'met' if value < goal else 'SHORT'}"
            print(f"  {label:58} {value:12.3f}{verdict}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "runs": measured}, indent=2) + "\n")


if __name__ == "__main__":
    main()
