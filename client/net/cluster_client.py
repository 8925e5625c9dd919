"""The cluster as a client sees it: its brokers, the leaders of partitions, and a way to send requests.

Only `ClusterClient` changes the metadata snapshot, and only on its event loop. One task keeps the snapshot fresh. It
sends a request when the snapshot is too old, or when a caller finds it out of date; callers share one request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from ottla.client.errors import (
    BrokerNotAvailableError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    NotControllerError,
)
from ottla.client.net.asyncio_connection import AsyncioConnection, Request
from ottla.client.net.backoff import Backoff
from ottla.client.net.client_metrics import Metrics, report
from ottla.client.net.connections import Connections
from ottla.client.net.coordinators import GROUP, Coordinators
from ottla.client.net.metadata import BrokerAddress, ClusterMetadata, first_of
from ottla.client.net.settings import ClientSettings, HostPort
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.identifiers import TopicPartition
from ottla.protocol.message import LAST_VERSION
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

log = logging.getLogger(__name__)

# The first version of Metadata in which an empty list means no topics, and null means all topics.
_METADATA_VERSION_MIN: Final = 1
# The first version that can ask for a missing topic without creating it.
_NO_AUTO_CREATE_VERSION: Final = 4

Listener = Callable[[ClusterMetadata], None]


class ClusterClient:
    """Connections and metadata of one client; use it on one event loop, between `start` and `close`."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        # The latest metadata; replaced as a whole.
        self.snapshot = ClusterMetadata()
        self._connections = Connections(settings)
        self._coordinators = Coordinators(self)
        self._listeners: list[Listener] = []
        # Topics to keep fresh.
        self._topics: set[str] = set()
        self._auto_create = False
        self._refreshing: asyncio.Task[None] | None = None
        self._refresh_asked = asyncio.Event()
        self._refreshed: asyncio.Future[None] | None = None
        # Brokers that gave no good answer since the last refresh. They may be cut off from the others.
        self._doubted: set[HostPort] = set()
        self._closed = False
        self._reporting: asyncio.Task[None] | None = None
        self._updated_at = 0.0

    def __repr__(self) -> str:
        return f"<ClusterClient {self.settings.bootstrap_servers} brokers={sorted(self.brokers)}>"

    async def __aenter__(self) -> ClusterClient:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect to one of the bootstrap servers; NoBrokersAvailable if none answers."""
        try:
            await self._update((), allow_auto_create=False)
        except BaseException:
            await self.close()
            raise
        self._refreshing = asyncio.create_task(self._keep_fresh())

    async def close(self) -> None:
        """Close all connections; requests in flight fail."""
        self._closed = True
        for task in (self._refreshing, self._reporting):
            # A statistics callback may close the client.
            if task is not None and task is not asyncio.current_task():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        self._tell_refreshed()
        await self._connections.close()

    def connection_metrics(self) -> dict[str, float]:
        """Return what is known of connections and requests, under the names of Kafka's clients."""
        age_s = asyncio.get_running_loop().time() - self._updated_at
        return {**self._connections.metrics.values(), "metadata-age": age_s}

    def report(self, metrics: Callable[[], Metrics]) -> None:
        """Call the statistics_callback with these metrics at intervals, if there is one, until `close`."""
        if self.settings.statistics_callback is not None:
            self._reporting = asyncio.create_task(
                report(metrics, self.settings.statistics_callback, self.settings.statistics_interval_ms)
            )

    @property
    def brokers(self) -> Mapping[int, BrokerAddress]:
        """The live brokers by node id."""
        return self.snapshot.brokers

    @property
    def controller_id(self) -> int | None:
        """The broker that accepts requests for the controller."""
        return self.snapshot.controller_id

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster."""
        return self.snapshot.cluster_id

    # Metadata.

    async def metadata(
        self, topics: Collection[str] | None = (), *, allow_auto_create: bool = False, force: bool = False
    ) -> ClusterMetadata:
        """Return a snapshot with these topics, or with all if None; from memory if it has them and is fresh.

        It also has topics that do not exist, with their errors.
        """
        if topics is None or force or not self._knows(topics):
            # The broker that had no leader for a topic, or did not know it, may be the only one to say so.
            is_doubted = topics is not None and any(topic in self.snapshot.topics for topic in topics)
            await self._update(topics, allow_auto_create, is_doubted=is_doubted)
        return self.snapshot

    def add_topics(self, topics: Iterable[str], *, allow_auto_create: bool = False) -> None:
        """Add topics to those that the snapshot keeps fresh."""
        self._topics.update(topics)
        self._auto_create |= allow_auto_create

    def add_listener(self, listener: Listener) -> None:
        """Call a function with each new snapshot."""
        if listener not in self._listeners:
            self._listeners.append(listener)

    def request_refresh(self, doubted: HostPort | None = None) -> asyncio.Future[None]:
        """Refresh the metadata of the kept topics soon; return when that has succeeded or failed.

        A doubted broker is asked only if no other one answers.
        """
        if doubted is not None:
            self._doubted.add(doubted)
        if self._refreshed is None:
            self._refreshed = asyncio.get_running_loop().create_future()
        self._refresh_asked.set()
        return self._refreshed

    def leader(self, partition: TopicPartition) -> int | None:
        """Return the node id of a partition's leader, as far as we know."""
        return self.snapshot.leader(partition)

    def learn_leader(
        self, partition: TopicPartition, leader_id: int, leader_epoch: int, endpoints: Iterable[Any] = ()
    ) -> bool:
        """Apply the leader named in a Produce or Fetch response; return whether it was new."""
        if leader_id < 0 or leader_epoch < 0:
            return False
        brokers = {row.node_id: BrokerAddress(row.node_id, row.host, row.port, row.rack) for row in endpoints}
        if leader_id not in brokers and leader_id not in self.brokers:
            return False
        changed = self.snapshot.with_leader(partition, leader_id, leader_epoch)
        if changed is self.snapshot:
            return False
        self._replace(changed.with_brokers(brokers))
        return True

    def learn_brokers(self, brokers: Mapping[int, BrokerAddress]) -> None:
        """Apply the broker addresses from a response that has them."""
        self.snapshot = self.snapshot.with_brokers(brokers)

    # Requests.

    def ready(self, node_id: int, lane: str = "") -> AsyncioConnection | None:
        """Return the open connection to a broker, if there is one."""
        broker = self.brokers.get(node_id)
        return None if broker is None else self._connections.ready(HostPort(broker.host, broker.port), lane)

    async def connection(self, node_id: int, lane: str = "") -> AsyncioConnection:
        """Return the connection to a broker, and connect if needed; each lane has its own connection."""
        broker = self.brokers.get(node_id)
        if broker is None:
            self.request_refresh()
            raise BrokerNotAvailableError(f"broker {node_id} is not in the metadata")
        try:
            return await self._connections.get(HostPort(broker.host, broker.port), lane)
        except KafkaConnectionError:
            self.request_refresh()
            raise

    async def send(
        self,
        node_id: int,
        api: Api,
        message: Request,
        timeout_ms: int | None = None,
        *,
        lane: str = "",
        version_min: int = 0,
        version_max: int = LAST_VERSION,
    ) -> Any:
        """Send a request to one broker, once, and return its response; KafkaError if that fails."""
        limit_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                connection = await self.connection(node_id, lane)
        except TimeoutError as error:
            raise KafkaTimeoutError(f"no connection to broker {node_id} within {limit_ms} ms") from error
        try:
            return await connection.request(
                api, message, version_min=version_min, version_max=version_max, timeout_ms=timeout_ms
            )
        except (KafkaConnectionError, KafkaTimeoutError):
            self.request_refresh(doubted=connection.address)
            raise

    async def send_any(
        self,
        api: Api,
        message: Request,
        timeout_ms: int | None = None,
        *,
        version_min: int = 0,
        version_max: int = LAST_VERSION,
    ) -> Any:
        """Send a request to any broker, and retry until the timeout."""

        async def attempt() -> Any:
            return await self._ask_around(api, message, version_min, version_max)

        return await self.retrying(attempt, timeout_ms)

    async def send_controller(
        self,
        api: Api,
        message: Request,
        timeout_ms: int | None = None,
        *,
        version_min: int = 0,
        version_max: int = LAST_VERSION,
    ) -> Any:
        """Send a request to the controller; if the controller has changed, send it to the new one.

        As in Java's client, a request is sent again if its response was lost.
        """

        async def attempt() -> Any:
            controller = self.controller_id
            if controller is None or controller not in self.brokers:
                await self._update((), allow_auto_create=False)
                controller = self.controller_id
            if controller is None:
                raise NotControllerError("the cluster has no controller at the moment")
            try:
                response = await self.send(
                    controller, api, message, timeout_ms, version_min=version_min, version_max=version_max
                )
            except KafkaError:
                self._forget_controller(controller)
                raise
            if has_error(response, ErrorCode.NOT_CONTROLLER):
                self._forget_controller(controller)
                raise NotControllerError(f"broker {controller} is not the controller")
            return response

        return await self.retrying(attempt, timeout_ms)

    async def coordinator(self, key: str, key_type: int = GROUP, timeout_ms: int | None = None) -> int:
        """Return the coordinator of a group, or of a transactional id if that is the key type."""
        return await self._coordinators.find(key, key_type, timeout_ms)

    def forget_coordinator(self, key: str, key_type: int = GROUP) -> None:
        """Forget the coordinator, so that the next call looks it up again."""
        self._coordinators.forget(key, key_type)

    async def send_coordinator(
        self,
        key: str,
        api: Api,
        message: Request,
        *,
        key_type: int = GROUP,
        version_min: int = 0,
        version_max: int = LAST_VERSION,
    ) -> Any:
        """Send a request to a coordinator, once; if that fails, the coordinator is looked up again the next time.

        The caller checks error codes in the response, and forgets a coordinator that says that it is none.
        """
        node_id = await self.coordinator(key, key_type)
        try:
            return await self.send(node_id, api, message, version_min=version_min, version_max=version_max)
        except KafkaError:
            self.forget_coordinator(key, key_type)
            raise

    async def retrying(
        self, attempt: Callable[[], Any], timeout_ms: int | None = None, *, backoff: Backoff | None = None
    ) -> Any:
        """Await `attempt()` until it succeeds, fails for good, or times out; raise its last error then."""
        limit_ms = self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        backoff = backoff or Backoff(self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms)
        last: KafkaError | None = None
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while True:
                    try:
                        return await attempt()
                    except KafkaError as error:
                        if not (error.retriable or isinstance(error, BrokerNotAvailableError)) or self._closed:
                            raise
                        last = error
                    wait_s = backoff.next()
                    log.info("trying again in %d ms: %s", wait_s * 1000, last)
                    await asyncio.sleep(wait_s)
        except TimeoutError as error:
            raise last or KafkaTimeoutError(f"no answer within {limit_ms} ms") from error

    # Private methods.

    def _knows(self, topics: Collection[str]) -> bool:
        known = self.snapshot.topics
        return all(
            topic in known and known[topic].partitions and known[topic].error is ErrorCode.NONE for topic in topics
        )

    async def _update(
        self,
        topics: Collection[str] | None,
        allow_auto_create: bool,
        *,
        is_doubted: bool = False,
        doubted: Collection[HostPort] = (),
    ) -> None:
        """Request metadata and apply it.

        If our metadata may be wrong, ask a random broker: the one that we are connected to may be cut off from the
        others, and would give the same answer for ever. Those that may be the ones come last.
        """
        wanted = None if topics is None else sorted({*topics, *self._topics})

        def build(version: int) -> MetadataRequest:
            # Older brokers create the topics that are asked for, if auto-creation is on.
            creates = allow_auto_create or version < _NO_AUTO_CREATE_VERSION
            rows = None if wanted is None else [MetadataRequestTopic(name=name) for name in wanted]
            return MetadataRequest(topics=rows, allow_auto_topic_creation=creates)

        response = await self._ask_around(
            Api.METADATA, build, _METADATA_VERSION_MIN, LAST_VERSION, by_chance=is_doubted, last=doubted
        )
        self._updated_at = asyncio.get_running_loop().time()
        merged = self.snapshot.merged(response)
        gone = set(merged.topics) - {row.name for row in response.topics}
        self._replace(merged.without(gone) if topics is None else merged)

    def _replace(self, snapshot: ClusterMetadata) -> None:
        before, self.snapshot = self.snapshot, snapshot
        if log.isEnabledFor(logging.INFO):
            _log_leader_changes(before, snapshot)
        for listener in self._listeners:
            listener(snapshot)

    async def _ask_around(
        self,
        api: Api,
        message: Request,
        version_min: int,
        version_max: int,
        *,
        by_chance: bool = False,
        last: Collection[HostPort] = (),
    ) -> Any:
        """Send a request to each address in turn until one answers; NoBrokersAvailable if none does."""
        if self._closed:
            raise IllegalStateError("the client is closed")
        failures = []
        for address in self._addresses(by_chance=by_chance, last=last):
            try:
                connection = await self._connections.get(address)
                return await connection.request(api, message, version_min=version_min, version_max=version_max)
            except (KafkaConnectionError, KafkaTimeoutError) as error:
                failures.append(error.detail)
        raise NoBrokersAvailable("; ".join(dict.fromkeys(failures)))

    def _addresses(self, *, by_chance: bool, last: Collection[HostPort] = ()) -> list[HostPort]:
        """All addresses: brokers first, those that failed recently after them, then bootstrap servers, then the last.

        Open connections with the fewest requests come first, unless the order is random.
        """
        connections = self._connections
        known = [HostPort(broker.host, broker.port) for broker in self.brokers.values()]
        random.shuffle(known)
        if not by_chance:
            known.sort(key=connections.in_flight)
            known.sort(key=lambda address: connections.ready(address) is None)
        known.sort(key=connections.is_failing)
        return sorted(dict.fromkeys((*known, *self.settings.addresses)), key=lambda address: address in last)

    def _forget_controller(self, controller: int) -> None:
        if self.controller_id == controller:
            self.snapshot = self.snapshot._replace(controller_id=None)

    async def _keep_fresh(self) -> None:
        """Request metadata on demand and periodically, but never more often than the backoff allows."""
        backoff = Backoff(self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.metadata_max_age_ms / 1000):
                    await self._refresh_asked.wait()
            is_doubted = self._refresh_asked.is_set()
            self._refresh_asked.clear()
            waiting, self._refreshed = self._refreshed, None
            doubted, self._doubted = self._doubted, set()
            try:
                await self._update((), self._auto_create, is_doubted=is_doubted, doubted=doubted)
                backoff.reset()
            except KafkaError:
                self._doubted |= doubted
                self._refresh_asked.set()
            finally:
                if waiting is not None and not waiting.done():
                    waiting.set_result(None)
            await asyncio.sleep(backoff.next())

    def _tell_refreshed(self) -> None:
        if self._refreshed is not None and not self._refreshed.done():
            self._refreshed.set_result(None)


def _log_leader_changes(before: ClusterMetadata, after: ClusterMetadata) -> None:
    changes = [
        f"{topic.name}-{number} from {'none' if known.leader is None else known.leader} "
        f"to {'none' if new.leader is None else new.leader}"
        for topic in after.topics.values()
        if (earlier := before.topics.get(topic.name)) is not None and earlier is not topic
        for number, new in topic.partitions.items()
        if (known := earlier.partitions.get(number)) is not None and known.leader != new.leader
    ]
    if changes:
        log.info("leader changed: %s", first_of(changes))


def has_error(response: Any, code: ErrorCode) -> bool:
    """Whether a response carries an error code, at its top or in one of its lists."""
    if getattr(response, "error_code", 0) == code:
        return True
    lists = (getattr(response, field.name) for field in response.wire_fields)
    return any(getattr(row, "error_code", 0) == code for rows in lists if isinstance(rows, list) for row in rows)
