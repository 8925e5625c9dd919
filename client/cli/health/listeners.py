"""Find out which broker is behind an address, and what it advertises, from its own options.

Metadata lists the brokers, but does not say which one is behind an address. A broker describes only its own options and
refuses those of other brokers, so the broker that answers for an id has that id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.results import BrokerDescription
from ottla.client.cli.health.http_pages import LISTENER
from ottla.client.cli.health.zookeeper_check import CONNECT
from ottla.client.errors import KafkaConfigurationError, KafkaError
from ottla.client.net.asyncio_connection import AsyncioConnection
from ottla.client.net.settings import ClientSettings, HostPort, parse_address
from ottla.protocol.api import Api
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

ADVERTISED: Final = "advertised.listeners"
# Ids to try for a broker that is not in the metadata: usual ones, and the first of Kafka's generated ids.
_USUAL_IDS: Final = (*range(100), *range(1001, 1011))


@dataclass(frozen=True, slots=True)
class Behind:
    """The broker behind an address, and what it advertises: entries like PLAINTEXT://host:port."""

    door: HostPort
    broker_id: int
    advertised: tuple[str, ...]
    # Its HTTP listener and its ZooKeeper; "" if the option is not set.
    pages: str = ""
    zookeeper: str = ""

    @property
    def addresses(self) -> list[HostPort]:
        """The addresses that it sends clients to."""
        found = []
        for entry in self.advertised:
            try:
                found.append(parse_address(entry))
            except KafkaConfigurationError:
                continue
        return found

    def corrected(self, wrong: HostPort) -> str:
        """Return what it should advertise: the working address instead of the wrong one."""
        return ",".join(
            f"{entry.partition('://')[0]}://{self.door}" if entry.endswith(f"://{wrong}") else entry
            for entry in self.advertised
        )


async def who_is_behind(door: HostPort, listed: Iterable[BrokerDescription], settings: ClientSettings) -> Behind | None:
    """Return the broker behind an address; None if it does not describe its options."""
    candidates = dict.fromkeys((*(each.broker_id for each in listed), *_USUAL_IDS))
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=ConfigResourceType.BROKER,
                resource_name=str(each),
                configuration_keys=[ADVERTISED, LISTENER, CONNECT],
            )
            for each in candidates
        ]
    )
    try:
        connection = await AsyncioConnection.open(*door, settings)
        try:
            timeout_ms = settings.connect_timeout_ms
            answer = await connection.request(Api.DESCRIBE_CONFIGS, request, timeout_ms=timeout_ms)
        finally:
            await connection.close()
    except KafkaError:
        return None
    for result in answer.results:
        if not result.error_code:
            values = {row.name: row.value or "" for row in result.configs}
            entries = tuple(entry.strip() for entry in values.get(ADVERTISED, "").split(",") if entry.strip())
            pages, zookeeper = values.get(LISTENER, ""), values.get(CONNECT, "")
            return Behind(door, int(result.resource_name), entries, pages, zookeeper)
    return None
