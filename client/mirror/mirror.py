"""The mirror: keeps topics, records, options, ACLs and offsets of groups in a destination in step with a source."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.client.admin.admin import Admin
from ottla.client.errors import KafkaError
from ottla.client.mirror.acls import Acls
from ottla.client.mirror.agreement import Agreement, Compared, agreement, notes_on
from ottla.client.mirror.copier import Copier
from ottla.client.mirror.destination import Destination
from ottla.client.mirror.errors import MirrorError
from ottla.client.mirror.groups import Groups
from ottla.client.mirror.kafka_destination import KafkaDestination
from ottla.client.mirror.ottla_destination import OttlaDestination
from ottla.client.mirror.partition_copy import PartitionCopy
from ottla.client.mirror.positions import Positions, bounds
from ottla.client.mirror.reading import Reader
from ottla.client.mirror.selection import Selection
from ottla.client.mirror.topics import Topics
from ottla.protocol.api import Api
from ottla.protocol.identifiers import TopicPartition

log = logging.getLogger(__name__)

# How often `once` follows producers that still write, before it says so.
_ROUNDS_MAX: Final = 5
_PROGRESS_WAIT_SECONDS: Final = 0.5
# `once` gives up if a cluster is away for so long.
_STALLED_SECONDS_MAX: Final = 120.0


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """What is copied, and how often what is not records is looked at."""

    selection: Selection = field(default_factory=Selection)
    with_acls: bool = True
    with_groups: bool = True
    interval_seconds: float = 5.0
    # Mirrors of the same source to one destination that is not ours, each with other topics, need different names.
    name: str = "default"


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """Where a mirror stands."""

    topics: int
    partitions: int
    groups: int
    records_copied: int
    bytes_copied: int
    lag_records: int
    lag_bytes: int
    lag_seconds: float
    # What is different in the destination, and why.
    notes: list[str]
    # The errors of what is tried again, and what is not copied any more, by partition.
    errors: dict[str, str]
    problems: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return {name: getattr(self, name) for name in self.__slots__}


class Mirror:
    """Copies between two clusters, between `start` and `close`."""

    def __init__(
        self,
        source: Admin,
        destination: Admin,
        options: MirrorOptions | None = None,
    ) -> None:
        """Take clients that are connected; they stay the caller's."""
        self._source = source
        self._destination = destination
        self._options = options or MirrorOptions()
        self._appender: Destination | None = None
        self._copier: Copier | None = None
        self._compared: Compared | None = None
        self._copying: asyncio.Task[None] | None = None
        self._groups = 0
        # Why topics, options, ACLs or groups could not be looked at last; None if they could.
        self.error: str | None = None

    async def __aenter__(self) -> Mirror:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Look at both clusters, create what is missing, and begin to copy; MirrorError if that cannot be done."""
        source, destination = await asyncio.gather(
            self._source.describe_cluster(), self._destination.describe_cluster()
        )
        if source.cluster_id is not None and source.cluster_id == destination.cluster_id:
            raise MirrorError(f"Source and destination are the same cluster, {source.cluster_id}.")
        appender = self._appender = await self._chosen_destination(f"{source.cluster_id}-{self._options.name}")
        await appender.start()
        reader = Reader(self._source.cluster, committed_only=not appender.copies_bytes)
        positions = Positions(reader, Reader(self._destination.cluster), appender)
        selection = self._options.selection
        self._copier = Copier(reader, appender, positions)
        self._compared = Compared(
            source=self._source,
            destination=self._destination,
            source_reader=reader,
            selection=selection,
            copier=self._copier,
            positions=positions,
            topics=Topics(self._source, self._destination, selection, sets_timestamps=appender.copies_bytes),
            groups=Groups(self._source, self._destination, selection),
            acls=Acls(self._source, self._destination, selection) if self._options.with_acls else None,
        )
        await self._mirror_topics()
        self._copying = asyncio.create_task(self._copier.run())

    async def close(self) -> None:
        """Stop copying. Whatever was under way is either in the destination or not; the next mirror finds out."""
        if self._copying is not None:
            self._copying.cancel()
            with contextlib.suppress(asyncio.CancelledError, KafkaError, ExceptionGroup):
                await self._copying
        if self._appender is not None:
            await self._appender.close()

    async def _chosen_destination(self, name: str) -> Destination:
        """Return how to write: brokers of ours take batches at their offsets, all others need ordinary requests."""
        for broker in self._destination.cluster.brokers:
            versions = await self._destination.api_versions(broker)
            if not any(each.api_key == Api.MIRROR_APPEND for each in versions):
                return KafkaDestination(self._destination, name)
        return OttlaDestination(self._destination.cluster)

    @property
    def copies_bytes(self) -> bool:
        """Whether batches are copied as they are, with transactions; not so to brokers of Apache Kafka."""
        return self._appender is not None and self._appender.copies_bytes

    async def run(self) -> None:
        """Keep everything in step until it is cancelled; MirrorError if that is not possible any more."""
        assert self._copying is not None
        while True:
            await asyncio.wait([self._copying], timeout=self._options.interval_seconds)
            self._check_copying()
            await self._mirror_all()

    async def once(self) -> Agreement:
        """Copy up to the current end of the source, and compare both clusters."""
        found: Agreement | None = None
        for _ in range(_ROUNDS_MAX):
            await self._catch_up()
            await self._mirror_all(strict=True)
            assert self._compared is not None
            earlier, found = found, await agreement(self._compared)
            if not found.differences or (earlier is not None and found.differences == earlier.differences):
                break
        assert found is not None
        return found

    async def _catch_up(self) -> None:
        """Wait until the destination has what the source has now, but for partitions with a problem."""
        copier, compared = self._copier, self._compared
        assert copier is not None
        assert compared is not None
        wanted: dict[TopicPartition, int] = {}
        loop, had, since = asyncio.get_running_loop(), -1, 0.0
        while True:
            missing = [partition for partition in copier.copies if partition not in wanted]
            if missing:
                reader = compared.source_reader
                for partition, found in (await bounds(reader.cluster, missing, reader.isolation)).items():
                    if not isinstance(found, KafkaError):
                        wanted[partition] = found[1]
            copier.progressed.clear()
            self._check_copying()
            if len(wanted) >= len(copier.copies) and all(
                copy.problem is not None or copy.has_reached(wanted.get(partition, 0))
                for partition, copy in copier.copies.items()
            ):
                return
            have = sum(copy.end_offset for copy in copier.copies.values())
            if have != had:
                had, since = have, loop.time()
            error = next((copy.error for copy in copier.copies.values() if copy.error is not None), None)
            if error is not None and loop.time() - since > _STALLED_SECONDS_MAX:
                raise MirrorError(f"Nothing could be copied for {_STALLED_SECONDS_MAX:g} s: {error}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PROGRESS_WAIT_SECONDS):
                    await copier.progressed.wait()

    def _check_copying(self) -> None:
        """Raise the error that has ended copying."""
        if self._copying is not None and self._copying.done() and not self._copying.cancelled():
            error = self._copying.exception()
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            if error is not None:
                raise error

    async def _mirror_all(self, *, strict: bool = False) -> None:
        """Bring topics, ACLs and groups in step; without `strict`, what fails is tried again the next time."""
        compared = self._compared
        assert compared is not None
        try:
            await self._mirror_topics()
            if compared.acls is not None:
                await compared.acls.mirror()
            if self._options.with_groups:
                self._groups = await compared.groups.mirror(compared.copier.copies)
            self.error = None
        except MirrorError:
            raise
        except KafkaError as error:
            if strict and not error.retriable:
                raise
            self.error = str(error)
            log.info("topics, ACLs and groups will be looked at again: %s", error)

    async def _mirror_topics(self) -> None:
        compared = self._compared
        assert compared is not None
        mirrored = await compared.topics.mirror()
        copier, wanted = compared.copier, set()
        for topic in mirrored:
            for number in range(topic.num_partitions):
                partition = TopicPartition(topic.name, number)
                wanted.add(partition)
                copier.add(partition).is_compacted = topic.is_compacted
        copier.remove(copier.copies.keys() - wanted)
        names = {topic.name for topic in mirrored}
        for cluster in (self._source.cluster, self._destination.cluster):
            cluster.add_topics(names)
            if any(cluster.leader(partition) is None for partition in wanted):
                await cluster.metadata(names, force=True)

    @property
    def copies(self) -> Mapping[TopicPartition, PartitionCopy]:
        """The partitions that are copied."""
        return {} if self._copier is None else self._copier.copies

    def now_ms(self) -> int:
        """Return the time that the lag of partitions is measured by."""
        return int(time.time() * 1000)

    def status(self) -> MirrorStatus:
        """Return where the mirror stands."""
        copies = self.copies
        now_ms = self.now_ms()
        return MirrorStatus(
            topics=len({partition.topic for partition in copies}),
            partitions=len(copies),
            groups=self._groups,
            records_copied=sum(copy.records_copied for copy in copies.values()),
            bytes_copied=sum(copy.bytes_copied for copy in copies.values()),
            lag_records=sum(copy.lag_records for copy in copies.values()),
            lag_bytes=sum(copy.lag_bytes for copy in copies.values()),
            lag_seconds=max((copy.lag_seconds(now_ms) for copy in copies.values()), default=0.0),
            notes=[] if self._compared is None else notes_on(self._compared),
            errors={str(partition): copy.error for partition, copy in copies.items() if copy.error is not None},
            problems={str(partition): copy.problem for partition, copy in copies.items() if copy.problem is not None},
        )
