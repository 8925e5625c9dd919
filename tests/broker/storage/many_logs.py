"""A broker's logs in small: two directories, segments of a few hundred bytes, clocks that the test moves."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest
from tests.kit.clock import FakeClock

from ottla.broker.config import BrokerConfig, TopicConfig
from ottla.broker.storage.directory_files import MetaProperties
from ottla.broker.storage.log import Log
from ottla.broker.storage.logs import Logs
from ottla.broker.storage.recovery.startup import open_logs
from ottla.broker.storage.segment import Segment
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import RecordBatch

OWNER = MetaProperties(1, "a-cluster")
TOPIC_ID = bytes(range(16))
OTHER_TOPIC_ID = bytes(range(1, 17))
ORDERS = TopicPartition("orders", 0)
VIEWS = TopicPartition("views", 3)
START_MS = 1_700_000_000_000


class Broker:
    """Opens logs in the same directories again and again, as restarts do."""

    def __init__(self, root: Path, directories: int = 2) -> None:
        self.paths = [root / f"data-{number}" for number in range(1, directories + 1)]
        self.clock = FakeClock(START_MS)
        self.settings = {
            "zookeeper.connect": "127.0.0.1:2181",
            "log.dirs": ",".join(map(str, self.paths)),
            "log.segment.bytes": "400",
        }
        self.statvfs: Callable[[Path], os.statvfs_result] = os.statvfs
        self.overrides: dict[str, dict[str, str]] = {}
        self._configs: dict[str, TopicConfig] = {}

    def start(self, now_seconds: Callable[[], float] = lambda: 0.0) -> Logs:
        """Open the logs."""
        self.config = BrokerConfig.of(self.settings)
        self._configs.clear()
        logs = Logs(self.config, self.config_of, self.clock, statvfs=self.statvfs)
        return open_logs(logs, OWNER, now_seconds=now_seconds)

    def config_of(self, topic: str) -> TopicConfig:
        """Return the options of a topic, one object until `configure`."""
        if topic not in self._configs:
            self._configs[topic] = TopicConfig(self.config, self.overrides.get(topic))
        return self._configs[topic]

    def configure(self, topic: str, overrides: dict[str, str]) -> None:
        """Give a topic other options."""
        self.overrides[topic] = overrides
        self._configs.pop(topic, None)


def crash(logs: Logs) -> None:
    """Leave everything as it is, as a killed process does; only the system lets go of its locks."""
    for log_dir in logs.dirs:
        log_dir.release()


def batch(records: int = 1, value: bytes = b"value", timestamp: int = START_MS, **header: int) -> RecordBatch:
    """Make a batch of equal records."""
    builder = RecordBatchBuilder()
    for _ in range(records):
        builder.append(timestamp, b"key", value)
    return RecordBatch(builder.build(**header))  # type: ignore[arg-type]


def append(log: Log, batches: int = 1, **fields: int) -> int:
    """Append batches of one record; return the offset after the last."""
    for _ in range(batches):
        log.append_as_leader(batch(**fields), 0)  # type: ignore[arg-type]
    return log.log_end_offset


def os_error(number: int) -> OSError:
    """Make the error that the system would raise."""
    return OSError(number, os.strerror(number))


def raising(number: int) -> Callable[..., NoReturn]:
    """Stand in for a function that the system refuses."""

    def refuse(*args: object, **options: object) -> NoReturn:
        raise os_error(number)

    return refuse


def break_disk(monkeypatch: pytest.MonkeyPatch, directory: Path, error_number: int) -> None:
    """Make every append in a log directory fail."""
    whole = Segment.append

    def failing(self: Segment, *args: Any, **options: Any) -> Any:
        if self.path.is_relative_to(directory):
            raise os_error(error_number)
        return whole(self, *args, **options)

    monkeypatch.setattr(Segment, "append", failing)


class FakeSpace:
    """What statvfs says."""

    def __init__(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes
        self.error: OSError | None = None

    def __call__(self, path: Path) -> os.statvfs_result:
        if self.error is not None:
            raise self.error
        return cast(os.statvfs_result, SimpleNamespace(f_bavail=self.free_bytes, f_blocks=1000, f_frsize=1))
