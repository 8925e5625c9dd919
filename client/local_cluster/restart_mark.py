"""The file `rolling-restart.json`: which processes the brokers were when a rolling restart began.

It is written once, and removed at the end. A broker has been restarted if it is another process by now, whoever started
that. So nothing has to be noted along the way, and a restart that is killed at any point can be continued.
"""

from __future__ import annotations

import os

import msgspec

from ottla.client.local_cluster.cluster_dir import ClusterDir
from ottla.client.local_cluster.errors import ClusterError
from ottla.client.local_cluster.record import ProcessRecord

MARK_NAME = "rolling-restart.json"
MARK_BYTES_MAX = 1024 * 1024


class RestartMark(msgspec.Struct, frozen=True, kw_only=True):
    """When a rolling restart began, and the pid and start time of each broker at that time."""

    began_ms: int
    processes: dict[str, tuple[int | None, str | None]]

    def is_done(self, broker: ProcessRecord) -> bool:
        """Return whether a broker runs, and was restarted since."""
        return broker.is_running() and self.processes.get(str(broker.id)) != (broker.pid, broker.start_time)


def new_mark(brokers: list[ProcessRecord], now_ms: int) -> RestartMark:
    """Return the mark of a restart of all brokers that begins now."""
    return RestartMark(began_ms=now_ms, processes={str(each.id): (each.pid, each.start_time) for each in brokers})


def read_mark(directory: ClusterDir) -> RestartMark | None:
    """Return the mark of a restart that has not ended; None if there is none that can be read."""
    try:
        with (directory.path / MARK_NAME).open("rb") as file:
            return msgspec.json.decode(file.read(MARK_BYTES_MAX), type=RestartMark)
    except (OSError, msgspec.MsgspecError):
        return None


def write_mark(directory: ClusterDir, mark: RestartMark) -> None:
    """Write the mark as a whole, or not at all."""
    path = directory.path / MARK_NAME
    new = path.with_suffix(".json.new")
    try:
        new.write_bytes(msgspec.json.encode(mark) + b"\n")
        os.replace(new, path)
    except OSError as error:
        raise ClusterError(f"Cannot write {path}: {error.strerror}.") from error


def remove_mark(directory: ClusterDir) -> None:
    """Remove the mark: the restart has ended."""
    (directory.path / MARK_NAME).unlink(missing_ok=True)
