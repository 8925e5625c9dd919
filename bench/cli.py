"""What commands cost: processor time of `ottla` beside kcat, on one broker, by turns.

    python -m bench.cli [--rounds N] [--command-line WORD...]

Prints the median of user and system time of the whole process, in seconds, and how much of it is Python's own start.
`--command-line` names another `ottla` to compare, such as that of an earlier version.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.kit.broker_process import BrokerProcess
from tests.kit.zookeeper import ZooKeeper, ZooKeeperServer

TOPIC = "orders"
GROUP = "billing"
# The script of the installation, as users call it.
OTTLA = (str(Path(sys.executable).with_name("ottla")),)


def processor_seconds(command: Sequence[str], data: bytes = b"") -> float:
    """Run a command; return the user and system time that it took."""
    with tempfile.TemporaryFile() as given, open(os.devnull, "w") as nowhere:
        given.write(data)
        given.seek(0)
        process = subprocess.Popen(command, stdin=given, stdout=nowhere, stderr=subprocess.PIPE)
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stderr.close()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}\n{said.decode()}")
    return usage.ru_utime + usage.ru_stime


def rows(ottla: Sequence[str], bootstrap: str) -> dict[str, tuple[list[str], bytes]]:
    """Return what is measured, by name."""
    where = ("-b", bootstrap)
    found = {
        "python -c pass": ([sys.executable, "-c", "pass"], b""),
        "ottla --help": ([*ottla, "--help"], b""),
        "ottla topic list": ([*ottla, "topic", "list", *where], b""),
        "ottla topic describe": ([*ottla, "topic", "describe", TOPIC, *where], b""),
        "ottla topic produce": ([*ottla, "topic", "produce", TOPIC, *where], b"one\n"),
        "ottla topic consume -n 1": ([*ottla, "topic", "consume", TOPIC, "-n", "1", *where], b""),
        "ottla group lag": ([*ottla, "group", "lag", GROUP, *where], b""),
    }
    if kcat := shutil.which("kcat"):
        found["kcat -L"] = ([kcat, *where, "-L"], b"")
        found["kcat -P"] = ([kcat, *where, "-t", TOPIC, "-P"], b"one\n")
        found["kcat -C -c 1"] = ([kcat, *where, "-t", TOPIC, "-C", "-c", "1", "-o", "beginning"], b"")
    return found


def main() -> None:
    """Measure by turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="how often each command is run")
    parser.add_argument("--command-line", nargs="+", default=list(OTTLA), help="the words that run ottla")
    options = parser.parse_args()
    # Whoever measures wants compiled modules, as an installation has them.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        server_folder = Path(folder, "zookeeper")
        server_folder.mkdir()
        with (
            ZooKeeperServer(server_folder) as server,
            BrokerProcess(Path(folder, "broker"), ZooKeeper(server).connect) as broker,
        ):
            for words in (
                ("topic", "create", TOPIC),
                ("topic", "produce", TOPIC, "one"),
                ("group", "seek", GROUP, "--to", "start", "--topic", TOPIC, "--yes"),
            ):
                processor_seconds([*OTTLA, *words, "-b", broker.bootstrap])
            measured = rows(options.command_line, broker.bootstrap)
            seconds: dict[str, list[float]] = {name: [] for name in measured}
            for _ in range(options.rounds):
                for name, (command, data) in measured.items():
                    seconds[name].append(processor_seconds(command, data))
    print(f"{'command':28}  processor time, s (median of {options.rounds}; least)")
    for name, taken in seconds.items():
        print(f"{name:28}  {statistics.median(taken):.3f}  {min(taken):.3f}")


if __name__ == "__main__":
    main()
