"""Ask one broker about itself, for `check health --local`; cheap enough for every few seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.client.net.asyncio_connection import AsyncioConnection
from ottla.client.net.settings import ClientSettings
from ottla.protocol.api import Api
from ottla.protocol.messages.metadata import MetadataRequest

# The first version that can ask for no topics.
_METADATA_VERSION_MIN: Final = 1


async def known_brokers(options: Mapping[str, Any]) -> int:
    """Ask the first bootstrap server for its versions, then return how many brokers it knows; KafkaError on failure."""
    settings = ClientSettings.from_kwargs(options)
    connection = await AsyncioConnection.open(*settings.addresses[0], settings)
    try:
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        answer = await connection.request(
            Api.METADATA, request, version_min=_METADATA_VERSION_MIN, timeout_ms=settings.request_timeout_ms
        )
        return len(answer.brokers)
    finally:
        await connection.close()
