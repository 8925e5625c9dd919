"""Three brokers under full load: how long ZooKeeper hears nothing from them, and how short a session may be.

    python -m bench.heartbeats [--session-ms 2000] [--seconds 20] [--busy 4] [--json FILE]

A session ends when ZooKeeper has heard nothing for its timeout. The broker's session thread sends a heartbeat after a
third of the timeout at the latest, if it gets the interpreter and a processor in time. Each row is another load beside
it: none, large batches, one record per request, both beside busy processes, and both beside a process that writes and
syncs files. Prints the longest silence of each broker; the session is in danger when one comes near its timeout.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.support.contender import Ottla
from bench.support.replicated_rows import BROKERS
from bench.support.report import machine
from bench.support.rows import topic_for
from bench.support.zookeeper_tap import ZooKeeperTap

_PARTITIONS: Final = 12
_SPIN: Final = "while True: pass"
# 64 MB at a time, each synced, over and over in the same file.
_SYNC: Final = """
import os, sys
data = os.urandom(1 << 26)
with open(sys.argv[1], "wb", 0) as file:
    while True:
        file.seek(0), file.write(data), os.fsync(file.fileno())
"""
_BATCHES: Final = ("produce", "--record-bytes", "1024")
_REQUESTS: Final = ("requests", "--record-bytes", "100")


class TappedOttla(Ottla):
    """Brokers whose connections to ZooKeeper pass through a tap."""

    def start_zookeeper(self) -> float:
        """Start ZooKeeper, and let brokers connect to the tap."""
        seconds = super().start_zookeeper()
        self.tap = ZooKeeperTap(self._zookeeper_port)
        self._zookeeper_port = self.tap.port
        return seconds


def main() -> None:
    """Read the command line, measure, and print every row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--session-ms", type=int, default=2000, help="zookeeper.session.timeout.ms")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each load goes on")
    parser.add_argument("--busy", type=int, default=4, help="processes that do nothing but use a processor")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values to a file, too")
    options = parser.parse_args()
    # Ended from outside, everything that was started is stopped as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print("  ".join(f"{key}: {value}" for key, value in machine().items()), flush=True)
    measured: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder, ExitStack() as cleanup:
        cluster = TappedOttla(
            Path(folder) / "ottla", BROKERS, {"zookeeper.session.timeout.ms": str(options.session_ms)}
        )
        cleanup.callback(cluster.stop)
        cluster.start()
        cleanup.enter_context(cluster.tap)
        spin = [[sys.executable, "-c", _SPIN]] * options.busy
        sync = [[sys.executable, "-c", _SYNC, str(Path(folder) / "synced")]]
        rows: dict[str, tuple[Sequence[Sequence[str]], Sequence[Sequence[str]]]] = {
            "idle": ([], []),
            "batches of 1 KB records": ([_BATCHES], []),
            "one record per request": ([_REQUESTS], []),
            f"both, beside {options.busy} busy processes": ([_BATCHES, _REQUESTS], spin),
            "both, beside writes that are synced": ([_BATCHES, _REQUESTS], sync),
        }
        for name, (loads, beside) in rows.items():
            measured[name] = sorted(_measure(cluster, loads, beside, options.seconds), reverse=True)
            silences = "  ".join(f"{silence * 1000:6.0f}" for silence in measured[name])
            share = measured[name][0] * 1000 / options.session_ms
            print(f"  {name:40} {silences} ms   {share:.0%} of the timeout", flush=True)
        logs = [log.read_text() for log in cluster.folder.glob("broker-*.log")]
        lost = sum(text.count("zookeeper_session_expired") for text in logs)
        print(f"sessions lost: {lost}")
    if options.json:
        report = {"machine": machine(), "session_ms": options.session_ms, "silences_s": measured, "lost": lost}
        options.json.write_text(json.dumps(report, indent=2) + "\n")


def _measure(
    cluster: TappedOttla, loads: Sequence[Sequence[str]], beside: Sequence[Sequence[str]], seconds: float
) -> list[float]:
    """Return the longest silence of each connection while the loads go on beside other processes."""
    with ExitStack() as cleanup:
        others = [subprocess.Popen(command) for command in beside]
        for process in others:
            cleanup.callback(process.wait)
            cleanup.callback(process.kill)
        topics = [cleanup.enter_context(topic_for(cluster, _PARTITIONS)) for _ in loads]
        cluster.tap.reset()
        running = [_started(cluster, topic, load, seconds) for topic, load in zip(topics, loads, strict=True)]
        if not running:
            time.sleep(seconds)
        for process in running:
            if process.wait():
                raise SystemExit(f"a load failed with status {process.returncode}")
        return cluster.tap.silences()


def _started(cluster: TappedOttla, topic: str, load: Sequence[str], seconds: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bench.support.load", *load, "--bootstrap", cluster.bootstrap, "--topic", topic]
    limits = ["--seconds", str(seconds), "--partitions", str(_PARTITIONS), "--set", "acks=all"]
    return subprocess.Popen([*command, *limits], stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
