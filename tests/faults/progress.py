"""How far a workload has come, read from the history that it is writing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
from tests.faults.checker.history import Event, Fail, Info, Invoke, Ok, Poll


class Progress:
    """Counts as of the last `update`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._decoder = msgspec.json.Decoder(Event)
        self._sent: dict[tuple[str, int], str] = {}
        self.acks: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        # The offset behind the highest that was acknowledged or read.
        self.ends: dict[str, int] = {}

    def update(self) -> None:
        """Read what was written since the last time."""
        if not self._path.exists():
            return
        with self._path.open("rb") as history:
            history.seek(self._position)
            written = history.read()
        whole = written[: written.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.splitlines():
            self._take(self._decoder.decode(line))

    def _take(self, event: Event) -> None:
        match event:
            case Invoke():
                self._sent[event.worker, event.op] = event.partition
            case Ok():
                partition = self._sent[event.worker, event.op]
                self.acks[partition] += 1
                self._know(partition, event.offset)
            case Fail() | Info():
                self.errors[event.error] += 1
            case Poll():
                for record in event.records:
                    self.reads[record.partition] += 1
                    self._know(record.partition, record.offset)
            case _:
                pass

    def _know(self, partition: str, offset: int) -> None:
        self.ends[partition] = max(self.ends.get(partition, 0), offset + 1)
