"""How much of the broker each user and client may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.cluster.configs import Configs
    from ottla.broker.config import BrokerConfig


class ClientQuotas:
    """The quotas that are set, and what was used of them."""

    def __init__(self, configs: Configs, config: Callable[[], BrokerConfig]) -> None:
        self._configs = configs
        self._config = config

    def start(self) -> None:
        """Read what is set, before any request is handled."""

    def entity_changed(self, entity_type: str, name: str) -> None:
        """Read anew what is set for a user, a client id or an address."""
