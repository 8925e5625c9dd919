"""Which of all limits applies to a user and a client id.

Names are those in the paths of ZooKeeper's nodes, where a user may be called `<default>` without being the default.
None means that the entity has no user or no client id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.broker.cluster.znodes import DEFAULT_ENTITY
from ottla.protocol.entity_names import sanitized

DEFAULT: Final = DEFAULT_ENTITY
_FOUND_MAX: Final = 4096
_CLIENT_ID_LENGTH_MAX: Final = 256


class Entity(NamedTuple):
    """The user, the client id, or the pair that a limit is set for."""

    user: str | None = None
    client_id: str | None = None


class Limit(NamedTuple):
    """A limit, and who shares it: all clients with the same `usage` are counted together."""

    value: float
    usage: Entity


class QuotaLimits:
    """The limits of one kind of quota. Immutable. The most specific entity counts, in this order:

    users/u/clients/c, users/u/clients/<default>, users/u, then the same for users/<default>, then clients/c and
    clients/<default>. A limit of a user counts all client ids of that user together. A default limit counts each user,
    client id or pair by itself.
    """

    __slots__ = ("_found", "_values")

    def __init__(self, values: Mapping[Entity, float]) -> None:
        self._values = dict(values)
        # The results of recent lookups, by principal and client id as they come.
        self._found: dict[tuple[str, str], Limit | None] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def of(self, principal: str, client_id: str) -> Limit | None:
        """Return the limit of a principal such as `User:alice` with a client id; None if there is none.

        Clients choose their ids, and counters are kept for thousands of them. So ids that begin alike for longer than
        any sensible one count as the same.
        """
        client_id = client_id[:_CLIENT_ID_LENGTH_MAX]
        key = (principal, client_id)
        try:
            return self._found[key]
        except KeyError:
            found = self.find(sanitized(principal.partition(":")[2]), sanitized(client_id))
        if len(self._found) >= _FOUND_MAX:
            self._found.clear()
        self._found[key] = found
        return found

    def find(self, user: str, client_id: str) -> Limit | None:
        """Return the same for names as in paths."""
        values = self._values
        both = Entity(user, client_id)
        for named in (user, DEFAULT):
            for client in (client_id, DEFAULT):
                if (value := values.get(Entity(named, client))) is not None:
                    return Limit(value, both)
            if (value := values.get(Entity(named))) is not None:
                return Limit(value, Entity(user))
        for client in (client_id, DEFAULT):
            if (value := values.get(Entity(None, client))) is not None:
                return Limit(value, Entity(None, client_id))
        return None


NO_LIMITS: Final = QuotaLimits({})
