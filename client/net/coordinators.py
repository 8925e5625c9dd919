"""The coordinators of groups and transactional ids: looked up once, and again when that broker denies it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.client.errors import error_for
from ottla.client.net.metadata import BrokerAddress
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest

if TYPE_CHECKING:
    from ottla.client.net.cluster_client import ClusterClient

# Key types: what a coordinator is of.
GROUP: Final = 0
TRANSACTION: Final = 1
# After these errors the coordinator is looked up again.
LOST_COORDINATOR: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION}
)
# The first version that takes several keys and answers each of them.
_KEYS_VERSION: Final = 4


class Coordinators:
    """The coordinators that are known, by key type and key."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._known: dict[tuple[int, str], int] = {}

    async def find(self, key: str, key_type: int, timeout_ms: int | None) -> int:
        """Return the node id of a coordinator; retries until there is one."""
        known = self._known.get((key_type, key))
        if known is not None and known in self._cluster.brokers:
            return known

        async def attempt() -> int:
            return await self._ask(key, key_type)

        node_id: int = await self._cluster.retrying(attempt, timeout_ms)
        self._known[key_type, key] = node_id
        return node_id

    def forget(self, key: str, key_type: int) -> None:
        """Forget a coordinator."""
        self._known.pop((key_type, key), None)

    async def _ask(self, key: str, key_type: int) -> int:
        def build(version: int) -> FindCoordinatorRequest:
            if version < _KEYS_VERSION:
                return FindCoordinatorRequest(key=key, key_type=key_type)
            return FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])

        response = await self._cluster.send_any(Api.FIND_COORDINATOR, build)
        row: Any = response.coordinators[0] if response.coordinators else response
        if row.error_code:
            raise error_for(row.error_code, row.error_message or f"no coordinator for {key!r}")
        node_id: int = row.node_id
        self._cluster.learn_brokers({node_id: BrokerAddress(node_id, row.host, row.port)})
        return node_id
