"""Reads the topics from the metadata that consumers send when they join a classic group."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from ottla.protocol.codec import decode_from
from ottla.protocol.errors import DecodeError
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

_VERSION: Final = struct.Struct(">h")
_VERSION_MAX: Final = 3


@lru_cache(maxsize=1024)
def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """Return the subscribed topics in a member's metadata; no topics if it cannot be decoded."""
    if len(metadata) < _VERSION.size:
        return frozenset()
    # Later versions only append fields to the ones we know.
    version = min(_VERSION.unpack_from(metadata)[0], _VERSION_MAX)
    try:
        found, _ = decode_from(ConsumerProtocolSubscription, version, metadata, _VERSION.size)
    except DecodeError:
        return frozenset()
    return frozenset(found.topics)
