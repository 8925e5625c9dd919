"""The README and the quick start, walked by their own commands in order, in a clean folder, at 80 columns.

What a person would see is checked: exit codes, and the cells that matter. The pages use the ports of a first cluster;
the walk has free ones, and commands find the cluster by themselves. Pages about Spark and TLS are walked elsewhere.
"""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

import pytest
from scripts.rooms import ROOT
from tests.client.clusters import DEADLINE_S
from tests.kit.waiting import until

COLUMNS = 80
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Walk:
    """A shell in a clean home, on a terminal of 80 columns."""

    def __init__(self, home: Path) -> None:
        self._home = home
        binaries = Path(sys.executable).parent
        self._environment = {
            "HOME": str(home),
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "TERM": "xterm",
            "LANG": "C.UTF-8",
            **({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}),
        }
        self.text = ""

    def run(self, command: str) -> tuple[int, str]:
        """Run a line; return its exit code and what is on the screen."""
        ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        shell = ["bash", "-o", "pipefail", "-c", command]
        with subprocess.Popen(
            shell, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=self._home, env=self._environment
        ) as process:
            os.close(theirs)
            shown = b"".join(_read(ours))
            code = process.wait(DEADLINE_S)
        os.close(ours)
        printed = _COLOURS.sub("", shown.decode()).replace("\r\n", "\n")
        self.text += f"$ {command}\n{printed}"
        return code, printed


def _read(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(descriptor, 4096)
        except OSError:
            # On Linux, the end of a terminal is an error.
            return
        if not chunk:
            return
        yield chunk


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    """Stop whatever cluster the walk has started."""
    made = Walk(tmp_path)
    yield made
    made.run("ottla down --timeout 5")
    (tmp_path / "walk.txt").write_text(made.text)


def commands(page: str, first: str, last: str) -> list[str]:
    """Return the commands of a page between two headings, in order."""
    text = (ROOT / page).read_text()
    begin = text.index(f"\n## {first}\n")
    part = text[begin : text.index(f"\n## {last}\n", begin) if last else None]
    return re.findall(r"^    (?:\$ )?((?:ottla|kcat|seq|printf|kill) .*)$", part, re.MULTILINE)


# Words that must be on the screen after a command that begins so.
README_SHOWS = {
    "kcat -b 127.0.0.1:9092 -t hello -C": ["hello, world"],
    "kcat -b 127.0.0.1:9092 -X auto.offset.reset": ["hello, world"],
    "ottla topic create orders": ["orders", "created"],
    "seq 1000": ["1000 records written to orders"],
    "ottla topic consume orders --offset -1": ["0/350 customer-999: order 999", "2/323 customer-1000: order 1000"],
    "ottla group lag": ["TOPIC", "LAG", "LAG-TIME", "orders"],
    "ottla topic describe": ["under-replicated", "351", "KiB"],
    "ottla check health": ["WARNING", "under-replicated; not alive: 1"],
    "ottla up --detach": ["bootstrap servers:", "broker", "running"],
    "ottla cluster health": ["healthy", "1, 2, 3", "under-replicated:  0"],
    "ottla doctor": ["ok", "ZooKeeper", "all are in sync"],
}
# What takes a moment to become true.
SOON = ("ottla topic describe", "ottla check health", "ottla cluster health", "ottla doctor")


def step(walk: Walk, command: str, shows: dict[str, list[str]], code: int = 0) -> None:
    """Run a command, again where the cluster needs a moment; check its exit code and what it shows."""
    wanted = next((words for start, words in shows.items() if command.startswith(start)), [])

    def is_right() -> bool:
        ended, shown = walk.run(command)
        return ended == code and all(word in shown for word in wanted)

    if command.startswith(SOON):
        until(is_right, f"{command!r} shows {wanted}")
    else:
        assert is_right(), walk.text[-3000:]


def ports(walk: Walk) -> str:
    """Return the address of the first broker."""
    _, shown = walk.run("""ottla status --format json | grep '"role": "broker"' | head -1""")
    found = re.search(r'"port": (\d+)', shown)
    assert found is not None, shown
    return f"127.0.0.1:{found[1]}"


def start(walk: Walk) -> None:
    """Start a cluster as the pages say, on free ports."""
    free = "--base-port 0 --http-base-port 0 --zookeeper-port 0 --console-port 0"
    code, shown = walk.run(f"ottla up --detach {free}")
    assert code == 0, shown
    assert all(re.search(rf"broker\s+{number}\s+\d+\s+127\.0\.0\.1:\d+", shown) for number in (1, 2, 3)), shown


def test_the_readme_is_walked(walk: Walk) -> None:
    """A cluster, kcat, records, a group, a killed broker, and the doctor."""
    start(walk)
    address = ports(walk)
    for command in commands("README.md", "Two commands", "Console"):
        if command.startswith("kcat"):
            step(walk, command.replace("127.0.0.1:9092", address), _addressed(README_SHOWS, address))
    for command in commands("README.md", "Command line", "In containers"):
        is_warning = command.startswith("ottla check health")
        # `echo $?` ends with 0; its output has the code of the check.
        step(walk, command, README_SHOWS, 0)
        if is_warning:
            assert walk.text.rstrip().endswith("\n1")


def _addressed(shows: dict[str, list[str]], address: str) -> dict[str, list[str]]:
    return {start.replace("127.0.0.1:9092", address): words for start, words in shows.items()}


QUICKSTART_SHOWS = {
    "ottla cluster health": ["healthy", "1, 2, 3"],
    "printf": ["3 records written to orders"],
    "ottla topic consume orders --exit -f": ["alice: 10", "bob: 20", "alice: 30"],
    "ottla topic describe": ["RECORDS", "SIZE", "ok"],
    "ottla topic consume orders --exit --json": ["3 records written to copy"],
    "ottla topic consume copy": ["30"],
    "ottla group lag": ["orders", "LAG"],
    "ottla group seek": ["BEFORE", "AFTER"],
    "ottla status": ["ROLE", "running", "UNDER-REPLICATED"],
    "ottla check health": ["OK: 3 brokers"],
    "ottla doctor": ["all are in sync"],
    "ottla topic delete": ["copy", "deleted"],
    "ottla down": ["broker 1 stopped"],
}


@pytest.mark.long
def test_the_quick_start_is_walked(walk: Walk) -> None:
    """Every command of the page succeeds."""
    start(walk)
    first, *rest = commands("docs/QUICKSTART.md", "Write and read", "")
    assert first.startswith("ottla topic create orders")
    for command in (first, *rest):
        step(walk, command, QUICKSTART_SHOWS)
