"""Watch over the clusters of a test run: `python -m ottla.client.testing.guard DIRECTORY`.

Brokers outlive the process that starts them. This process waits for the end of its standard input, a pipe from the test
run, and then kills all processes that are still running. This works even if the test run itself was killed.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from ottla.client.local_cluster.cluster_dir import ClusterDir
from ottla.client.local_cluster.process import send_signal


def main(directory: Path) -> None:
    """Wait, and kill."""
    while sys.stdin.buffer.read(4096):
        pass
    record = ClusterDir(directory).read()
    for process in record.processes if record else ():
        if process.pid is not None:
            send_signal(process.pid, process.start_time, signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
