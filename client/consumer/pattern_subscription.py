"""A subscription to all topics whose names match; it checks again whenever the metadata is too old."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable

from ottla.client.consumer.settings import ConsumerSettings
from ottla.client.errors import KafkaConfigurationError, KafkaError
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.metadata import ClusterMetadata


class PatternSubscription:
    """Calls `changed` with the matching topics, each time they change, from `start` to `close`."""

    def __init__(
        self,
        cluster: ClusterClient,
        settings: ConsumerSettings,
        pattern: str,
        changed: Callable[[frozenset[str]], None],
    ) -> None:
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise KafkaConfigurationError(f"{pattern!r} is not a regular expression: {error}") from error
        self._cluster = cluster
        self._settings = settings
        self._changed = changed
        self._topics: frozenset[str] = frozenset()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to look for topics."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def matching(self, metadata: ClusterMetadata) -> frozenset[str]:
        """Return the topics whose names match from the start; internal ones only on request."""
        with_internal = not self._settings.exclude_internal_topics
        return frozenset(
            name
            for name, topic in metadata.topics.items()
            if topic.partitions and (with_internal or not topic.is_internal) and self._pattern.match(name)
        )

    async def _run(self) -> None:
        while True:
            wait_ms = self._settings.metadata_max_age_ms
            try:
                topics = self.matching(await self._cluster.metadata(None))
            except KafkaError:
                wait_ms = self._settings.retry_backoff_max_ms
            else:
                if topics != self._topics:
                    self._topics = topics
                    self._changed(topics)
            await asyncio.sleep(wait_ms / 1000)
