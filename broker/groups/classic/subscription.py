"""What consumers say when they join: the topics that they read, as far as it can be understood."""

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
    """Return the topics of a member's metadata; none where it is not a consumer's."""
    if len(metadata) < _VERSION.size:
        return frozenset()
    # Later versions only add fields behind those that we know.
    version = min(_VERSION.unpack_from(metadata)[0], _VERSION_MAX)
    try:
        found, _ = decode_from(ConsumerProtocolSubscription, version, metadata, _VERSION.size)
    except DecodeError:
        return frozenset()
    return frozenset(found.topics)
