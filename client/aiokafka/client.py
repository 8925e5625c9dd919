"""AIOKafkaClient: what programs ask of aiokafka's client about the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from ottla.client import errors as ours
from ottla.client.aiokafka.errors import KafkaConnectionError
from ottla.client.aiokafka.options import VERSION, check_deprecated, client_options
from ottla.client.aiokafka.structs import BrokerMetadata
from ottla.client.aiokafka.translation import translating
from ottla.client.net.cluster_client import ClusterClient
from ottla.client.net.metadata import ClusterMetadata as Snapshot
from ottla.client.net.settings import ClientSettings

__all__ = ["AIOKafkaClient"]


@contextmanager
def bootstrapping(settings: ClientSettings) -> Iterator[None]:
    """Turn what keeps a client from starting into KafkaConnectionError, as aiokafka does."""
    try:
        yield
    except (ours.KafkaConnectionError, ours.KafkaTimeoutError, ours.SaslAuthenticationFailedError) as error:
        hosts = [(address.host, address.port) for address in settings.addresses]
        raise KafkaConnectionError(f"Unable to bootstrap from {hosts}: {error.detail}") from error


class AIOKafkaClient:
    """The cluster as a client knows it."""

    def __init__(
        self,
        *,
        loop: Any = None,
        bootstrap_servers: Any = "localhost",
        client_id: str = "aiokafka-" + VERSION,
        metadata_max_age_ms: int = 300000,
        request_timeout_ms: int = 40000,
        retry_backoff_ms: int = 100,
        ssl_context: Any = None,
        security_protocol: str = "PLAINTEXT",
        api_version: Any = None,
        connections_max_idle_ms: int | None = 540000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
    ) -> None:
        check_deprecated(loop, api_version)
        options = client_options(
            bootstrap_servers=bootstrap_servers,
            client_id=client_id,
            metadata_max_age_ms=metadata_max_age_ms,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            ssl_context=ssl_context,
            security_protocol=security_protocol,
            connections_max_idle_ms=connections_max_idle_ms,
            sasl_mechanism=sasl_mechanism,
            sasl_plain_username=sasl_plain_username,
            sasl_plain_password=sasl_plain_password,
            sasl_oauth_token_provider=sasl_oauth_token_provider,
        )
        try:
            self._settings = ClientSettings.from_kwargs(options)
        except ours.KafkaConfigurationError as error:
            raise ValueError(error.detail) from error
        self._cluster: ClusterClient | None = None

    @classmethod
    def around(cls, settings: ClientSettings, cluster: ClusterClient | None) -> Self:
        """Return the client of a producer or a consumer."""
        made = cls.__new__(cls)
        made._settings = settings
        made._cluster = cluster
        return made

    def __repr__(self) -> str:
        return f"<AIOKafkaClient client_id={self._settings.client_id}>"

    @property
    def hosts(self) -> list[Any]:
        """The bootstrap servers."""
        return [(address.host, address.port, 0) for address in self._settings.addresses]

    @property
    def cluster(self) -> ClusterView:
        """The metadata that is known now."""
        return ClusterView(Snapshot() if self._cluster is None else self._cluster.snapshot)

    async def bootstrap(self) -> None:
        """Connect to the cluster; KafkaConnectionError if no broker answers."""
        self._cluster = ClusterClient(self._settings)
        with bootstrapping(self._settings):
            await self._cluster.start()

    async def close(self) -> None:
        """Close all connections."""
        if self._cluster is not None:
            await self._cluster.close()

    def force_metadata_update(self) -> asyncio.Future[bool]:
        """Refresh the metadata; return the future of whether that has worked."""
        return asyncio.ensure_future(self._refresh())

    async def _refresh(self) -> bool:
        await self._started().request_refresh()
        return True

    @translating
    async def fetch_all_metadata(self) -> ClusterView:
        """Return the metadata of all topics."""
        return ClusterView(await self._started().metadata(None))

    def add_topic(self, topic: str) -> asyncio.Future[bool]:
        """Keep the metadata of a topic fresh."""
        self._started().add_topics([topic])
        return self.force_metadata_update()

    def set_topics(self, topics: Iterable[str]) -> asyncio.Future[bool]:
        """Keep the metadata of these topics fresh."""
        self._started().add_topics(topics)
        return self.force_metadata_update()

    def get_random_node(self) -> int | None:
        """Return the node id of a broker."""
        return next(iter(self._started().brokers), None)

    def _started(self) -> ClusterClient:
        if self._cluster is None:
            raise KafkaConnectionError("the client is not started")
        return self._cluster


class ClusterView:
    """Metadata of brokers and topics, at one time."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @property
    def controller(self) -> BrokerMetadata | None:
        """The controller, if it is known."""
        known = self._snapshot.controller_id
        return None if known is None else self.broker_metadata(known)

    def brokers(self) -> set[BrokerMetadata]:
        """Return all brokers."""
        return {
            BrokerMetadata(each.node_id, each.host, each.port, each.rack) for each in self._snapshot.brokers.values()
        }

    def broker_metadata(self, broker_id: Any) -> BrokerMetadata | None:
        """Return where a broker listens."""
        known = self._snapshot.brokers.get(broker_id)
        return None if known is None else BrokerMetadata(known.node_id, known.host, known.port, known.rack)

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """Return the names of all topics that are known."""
        return {
            name
            for name, topic in self._snapshot.topics.items()
            if topic.partitions and not (exclude_internal_topics and topic.is_internal)
        }

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of a topic; None if it is not known."""
        return self._snapshot.partitions_for(topic)

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of a topic that have a leader; None if the topic is not known."""
        known = self._snapshot.topics.get(topic)
        if known is None or not known.partitions:
            return None
        return {number for number, one in known.partitions.items() if one.leader is not None}

    def leader_for_partition(self, partition: Any) -> int | None:
        """Return the node id of a leader; -1 if there is none, None if the partition is not known."""
        topic = self._snapshot.topics.get(partition[0])
        known = None if topic is None else topic.partitions.get(partition[1])
        return None if known is None else -1 if known.leader is None else known.leader
