"""Three brokers with thousands of partitions: how long things take, and what they cost when nothing happens.

    python -m bench.scale [--partitions N] [--topics N] [--json FILE]

Without --topics, once with one topic and once with the same partitions in topics of a hundred, all created in one
request with replication factor 3. The session timeout is that of `ottla up`. Goals: another controller is in office
under 10 s after the first was killed, an idle broker uses less than a tenth of a core, and a client gets the metadata
of all topics in under 100 ms.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

from bench.support.report import machine
from bench.support.scale_run import GOALS, measure_scale

PARTITIONS = 2000
TOPIC_PARTITIONS = 100


def main() -> None:
    """Read the command line, measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="in all topics together")
    parser.add_argument("--topics", type=int, help="one run with so many topics")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to a file, too")
    options = parser.parse_args()
    # Ended from outside, everything that was started is stopped as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print("  ".join(f"{key}: {value}" for key, value in machine().items()), flush=True)
    counts = [options.topics] if options.topics else [1, max(1, options.partitions // TOPIC_PARTITIONS)]
    measured = {}
    for topics in counts:
        each = options.partitions // topics
        print(f"\n{topics} topics of {each} partitions", flush=True)
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
            values = measured[f"{topics} x {each}"] = measure_scale(Path(folder), topics, each)
        for name, value in values.items():
            goal = GOALS.get(name)
            verdict = "" if goal is None else f"   goal under {goal:g}: {'met' if value < goal else 'SHORT'}"
            print(f"  {name:48} {value:10.3f}{verdict}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "runs": measured}, indent=2) + "\n")


if __name__ == "__main__":
    main()
