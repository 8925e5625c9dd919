"""The lag of groups in time: how old the first record is that a group has not committed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from ottla.client.admin.admin import Admin
from ottla.client.errors import KafkaError
from ottla.protocol.identifiers import TopicPartition

_KEPT: Final = 10_000
# A record keeps its time. But after an unclean election or in a new topic of the same name, another one is there.
_KEPT_MS: Final = 60_000


class TimeLags:
    """Asks for the times of records, and remembers them: a group that does not read costs one look a minute."""

    def __init__(self, admin: Admin, now_ms: Callable[[], int], kept: int = _KEPT) -> None:
        self._admin = admin
        self._now_ms = now_ms
        self._kept = kept
        # By partition and offset: when the record was written, and when we asked.
        self._times: OrderedDict[tuple[TopicPartition, int], tuple[int, int]] = OrderedDict()

    def known(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the ages in milliseconds that are remembered."""
        now = self._now_ms()
        found = {}
        for partition, offset in offsets.items():
            time, asked_at = self._times.get((partition, offset), (0, -_KEPT_MS))
            if now - asked_at < _KEPT_MS:
                found[partition] = max(0, now - time)
        return found

    async def read(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Ask for the times of the records at these offsets, unless they are remembered."""
        known = self.known(offsets)
        asked = {partition: offset for partition, offset in offsets.items() if partition not in known}
        if not asked:
            return
        try:
            times = await self._admin.record_times(asked)
        except KafkaError:
            return
        now = self._now_ms()
        for partition, time in times.items():
            self._times[partition, asked[partition]] = (time, now)
            self._times.move_to_end((partition, asked[partition]))
        while len(self._times) > self._kept:
            self._times.popitem(last=False)
