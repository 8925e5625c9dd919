"""What a broker tells clients of where it is, by its own options.

Metadata says where brokers are, but not which of them is behind the address that was dialed. Each broker tells its own
options, and refuses those of others: so whoever answers for an id has that id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.results import BrokerDescription
from ottla.client.cli.http_pages import LISTENER
from ottla.client.cli.zookeeper_check import CONNECT
from ottla.client.errors import KafkaConfigurationError, KafkaError
from ottla.client.net.asyncio_connection import AsyncioConnection
from ottla.client.net.settings import ClientSettings, HostPort, parse_address
from ottla.protocol.api import Api
from ottla.protocol.config_resources import ConfigResourceType
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

ADVERTISED: Final = "advertised.listeners"
# Ids that people give, and the first of those that Kafka makes up; for a broker that the metadata leaves out.
_USUAL_IDS: Final = (*range(100), *range(1001, 1011))


@dataclass(frozen=True, slots=True)
class Behind:
    """The broker behind an address, and what it advertises: entries like PLAINTEXT://host:port."""

    door: HostPort
    broker_id: int
    advertised: tuple[str, ...]
    # Where it serves pages over HTTP, and its ZooKeeper; "" if it does not say.
    pages: str = ""
    zookeeper: str = ""

    @property
    def addresses(self) -> list[HostPort]:
        """Where it sends clients."""
        found = []
        for entry in self.advertised:
            try:
                found.append(parse_address(entry))
            except KafkaConfigurationError:
                continue
        return found

    def corrected(self, wrong: HostPort) -> str:
        """Return what it should advertise: the address that works in place of the one that does not."""
        return ",".join(
            f"{entry.partition('://')[0]}://{self.door}" if entry.endswith(f"://{wrong}") else entry
            for entry in self.advertised
        )


async def who_is_behind(door: HostPort, listed: Iterable[BrokerDescription], settings: ClientSettings) -> Behind | None:
    """Return the broker behind an address; None if it does not tell."""
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
