"""How large a request may be, by its API and by its sender.

A request without records needs little room, and each byte of it may cost a hundred bytes of memory and a microsecond of
a worker. So only Produce, and requests of brokers, may be as large as `socket.request.max.bytes`. The entries of lists
are limited apart from the bytes: they are what takes time, also in a Produce that has no records.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.config import BrokerConfig
from ottla.broker.requests.access import comes_from_broker
from ottla.broker.security.acls.authorizer import Authorizer
from ottla.broker.security.session import Session
from ottla.protocol.api import Api
from ottla.protocol.decoder import ENTRIES_UNLIMITED

# An entry takes a byte at least, so a request of this size cannot have more entries than any limit allows.
ENTRIES_MAX_LEAST: Final = 64 * 1024


def request_bytes_max(config: BrokerConfig, authorizer: Authorizer, session: Session, api_key: int) -> int:
    """Return the size that a request may have, by the first two bytes of it."""
    try:
        api = Api(api_key)
    except ValueError:
        return config.ottla_request_max_bytes
    if api is Api.PRODUCE or comes_from_broker(authorizer, session, api):
        return config.socket_request_max_bytes
    return min(config.ottla_request_max_bytes, config.socket_request_max_bytes)


def request_entries_max(config: BrokerConfig, authorizer: Authorizer, session: Session, api: Api) -> int:
    """Return how many entries the lists of a request may have, all together."""
    return ENTRIES_UNLIMITED if comes_from_broker(authorizer, session, api) else config.ottla_request_max_entries
