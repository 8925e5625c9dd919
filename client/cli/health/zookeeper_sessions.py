"""Which brokers have lost ZooKeeper, by their own account.

A cluster without ZooKeeper serves on: its metadata still names a controller and leaders. But no topic can be created,
and nobody takes over from a broker that dies. Kafka's protocol does not tell, so there are two other ways. A broker of
ours says so on its HTTP port. And a broker that reads its options from ZooKeeper does not return them.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
from collections.abc import Collection
from typing import Final

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import BrokerDescription, ConfigResource
from ottla.client.cli.health.http_pages import LISTENER, UntrustedHostError, get_page, page_url
from ottla.client.errors import KafkaError
from ottla.protocol.config_resources import ConfigResourceType

_TIMEOUT_S_MAX: Final = 3.0
_PAGE_BYTES_MAX: Final = 64 * 1024
_CONNECTED: Final = "connected"


async def without_zookeeper(admin: Admin, brokers: Collection[BrokerDescription]) -> tuple[int, ...]:
    """Return the ids of brokers that cannot reach ZooKeeper; those about which nothing is known are left out."""
    timeout_s = min(_TIMEOUT_S_MAX, admin.cluster.settings.default_api_timeout_ms / 3000)
    are_cut_off = await asyncio.gather(*(_is_cut_off(admin, broker, timeout_s) for broker in brokers))
    return tuple(broker.broker_id for broker, is_so in zip(brokers, are_cut_off, strict=True) if is_so)


async def _is_cut_off(admin: Admin, broker: BrokerDescription, timeout_s: float) -> bool:
    resource = ConfigResource(ConfigResourceType.BROKER, str(broker.broker_id))
    try:
        async with asyncio.timeout(timeout_s):
            (described,) = await admin.describe_configs([resource], names=[LISTENER], raise_errors=False)
    except TimeoutError:
        return True
    except KafkaError:
        return False
    listener = next((each.value for each in described.entries if each.name == LISTENER), None)
    if not listener:
        return False
    named = [address.host for address in admin.cluster.settings.addresses]
    url = page_url(listener, broker.host, "/health")
    return await asyncio.to_thread(_session, url, timeout_s, named) not in (_CONNECTED, None)


def _session(url: str, timeout_s: float, named: list[str]) -> str | None:
    """Return what a broker says of its session; None if it does not."""
    try:
        with get_page(url, timeout_s, token_for=named) as page:
            told = page.read(_PAGE_BYTES_MAX)
    except urllib.error.HTTPError as answer:
        # A broker that is not ready says why.
        told = answer.read(_PAGE_BYTES_MAX)
    except (OSError, UntrustedHostError):
        return None
    try:
        state = json.loads(told).get("zookeeper")
    except (ValueError, AttributeError):
        return None
    return state if isinstance(state, str) else None
