"""A broker's place in the cluster: the cluster's id, the broker's id, and its registration.

A broker is a member as long as its ephemeral node /brokers/ids/<id> exists. The czxid of that node is the broker epoch.
It grows with each registration, so the epoch in a request shows whether it was meant for an earlier registration.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from msgspec import UNSET

from ottla.broker.cluster import znodes
from ottla.broker.cluster.operations import (
    Create,
    MultiError,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
    ZNode,
)
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.config import BrokerConfig, Listener, SecurityProtocol
from ottla.protocol.primitives import uuid_to_text

log = structlog.get_logger(__name__)

# Servers may end a session up to one tick late, and the earlier process may have had a longer timeout.
_EARLIER_LIFE_FACTOR: Final = 1.5
_REGISTRATION_SECONDS_MAX: Final = 5.0
_ATTEMPTS_MAX: Final = 10


class RegistrationError(Exception):
    """The broker cannot become a member. The text says why, and what to do about it."""


class Membership:
    """This broker's membership. Used by the thread that starts the broker, then by the one that renews the session."""

    def __init__(self, zookeeper: ZooKeeper, config: BrokerConfig, *, clock: Callable[[], int]) -> None:
        """`clock` returns milliseconds since 1970."""
        self._zookeeper = zookeeper
        self._config = config
        self._clock = clock
        self._listeners: Sequence[Listener] = ()
        self._earlier_sessions: set[int] = set()
        self.broker_id = -1
        # -1 while the broker is not registered. Any thread may read it.
        self.broker_epoch = -1
        self._is_registered = threading.Event()

    @property
    def may_lead_alone(self) -> bool:
        """Whether no other broker can have heard that this one is gone. Cheap; any thread may ask.

        While this is False, another broker may lead the partitions that this one believes to lead. So it must not
        acknowledge a record that no other in-sync replica has confirmed.
        """
        return self.broker_epoch >= 0 and self._zookeeper.is_session_sure

    def was_heard_within_ms(self, limit_ms: int) -> bool:
        """Whether ZooKeeper is known to have heard from this member in the last `limit_ms`. Cheap; any thread may ask.

        Pings are answered all the time, so a member that was not heard for long probably hears nobody.
        """
        return self.broker_epoch >= 0 and self._zookeeper.was_heard_within(limit_ms / 1000)

    def prepare(self) -> None:
        """Create the parents of all other nodes."""
        self._zookeeper.ensure_paths(znodes.PERSISTENT_PATHS)

    def cluster_id(self) -> str:
        """Return the id of the cluster; the first broker chooses it."""
        node = self._zookeeper.read_or_none(znodes.CLUSTER_ID)
        if node is None:
            content = znodes.ClusterIdNode(id=uuid_to_text(znodes.new_uuid()))
            self._zookeeper.ensure_path("/cluster")
            try:
                self._zookeeper.create(znodes.CLUSTER_ID, content.encode())
                return content.id
            except NodeExistsError:
                node = self._zookeeper.read(znodes.CLUSTER_ID)
        return znodes.ClusterIdNode.decode(node.data, znodes.CLUSTER_ID).id

    def choose_broker_id(self, stored: int | None) -> int:
        """Return the configured id, or else the id in the log directories, or else a new one."""
        if self._config.broker_id >= 0:
            self.broker_id = self._config.broker_id
        elif stored is not None:
            self.broker_id = stored
        else:
            # The config was checked already: ids may be generated.
            stat = self._zookeeper.write(znodes.BROKER_SEQUENCE, b"")
            self.broker_id = self._config.reserved_broker_max_id + stat.version
        return self.broker_id

    def await_vacancy(self, listeners: Sequence[Listener]) -> None:
        """Wait until no earlier process of this broker is registered; refuse to start if another broker is.

        `listeners` are the advertised ones, with the ports in use.
        """
        content = self._claim(listeners)
        node = self._zookeeper.read_or_none(znodes.broker_path(self.broker_id))
        if node is not None and node.stat.ephemeral_owner != self._zookeeper.session_id:
            self._clear_earlier_life(node, content)

    def register(self, listeners: Sequence[Listener] | None = None) -> int:
        """Become a member; return the broker epoch. `listeners` are the advertised ones, with the ports in use."""
        content = self._claim(self._config.public_listeners if listeners is None else listeners)
        path = znodes.broker_path(self.broker_id)
        for _ in range(_ATTEMPTS_MAX):
            operations: list[Operation] = [Create(path, ephemeral=True), SetData(path, content.encode(), 0)]
            try:
                stat = self._zookeeper.multi(operations)[1]
            except MultiError as error:
                if not isinstance(error.reason, NodeExistsError):
                    raise
                node = self._zookeeper.read_or_none(path)
                if node is None:
                    continue
                if node.stat.ephemeral_owner != self._zookeeper.session_id:
                    self._clear_earlier_life(node, content)
                    continue
                # The answer to the first try was lost.
                stat = node.stat
            assert stat is not None
            self.broker_epoch = stat.czxid
            self._is_registered.set()
            self._earlier_sessions.add(self._zookeeper.session_id)
            log.info("broker_registered", broker=self.broker_id, epoch=stat.czxid, endpoints=content.endpoints)
            return stat.czxid
        raise RegistrationError(
            f"{path} keeps changing; is broker {self.broker_id} restarted again and again elsewhere?"
        )

    def await_registration(self) -> None:
        """Wait until the broker is a member, but only briefly: other requests wait behind the caller's."""
        self._is_registered.wait(_REGISTRATION_SECONDS_MAX)

    def session_expired(self) -> None:
        """Note that the cluster no longer counts this broker as a member."""
        self._is_registered.clear()
        self.broker_epoch = -1

    def session_renewed(self) -> None:
        """Become a member again, with a higher epoch."""
        self.register(self._listeners)

    def _claim(self, listeners: Sequence[Listener]) -> znodes.BrokerNode:
        """Return what to register; raise RegistrationError if another broker has one of the addresses."""
        self._listeners = tuple(listeners)
        content = self._content()
        self._refuse_shared_addresses(content)
        return content

    def _content(self) -> znodes.BrokerNode:
        plain = next((each for each in self._listeners if each.security_protocol is SecurityProtocol.PLAINTEXT), None)
        return znodes.BrokerNode(
            host=None if plain is None else plain.host,
            port=-1 if plain is None else plain.port,
            endpoints=[_endpoint(listener) for listener in self._listeners],
            timestamp=str(self._clock()),
            rack=UNSET if self._config.broker_rack is None else self._config.broker_rack,
            listener_security_protocol_map={each.name: each.security_protocol.value for each in self._listeners},
        )

    def _refuse_shared_addresses(self, content: znodes.BrokerNode) -> None:
        """Refuse to start if another broker has our address: both would get each other's requests."""
        addresses = {endpoint.address for endpoint in content.parsed_endpoints()}
        ids = [name for name in self._zookeeper.children(znodes.BROKER_IDS) if name != str(self.broker_id)]
        paths = [f"{znodes.BROKER_IDS}/{name}" for name in ids]
        for name, path, node in zip(ids, paths, self._zookeeper.read_many(paths), strict=True):
            if node is None:
                continue
            for endpoint in znodes.BrokerNode.decode(node.data, path).parsed_endpoints():
                if endpoint.address in addresses:
                    raise RegistrationError(
                        f"broker {name} is registered with the address {endpoint.address} that broker "
                        f"{self.broker_id} would advertise; change advertised.listeners of one of them"
                    )

    def _clear_earlier_life(self, node: ZNode, content: znodes.BrokerNode) -> None:
        """Remove the node of an earlier session of this broker; refuse to start if the node is another broker's.

        A node of an earlier session of this process is deleted. A node with our addresses may belong to a process that
        was killed. It disappears with its session, so we wait for that and do not delete what may be alive.
        """
        path = znodes.broker_path(self.broker_id)
        if node.stat.ephemeral_owner in self._earlier_sessions:
            try:
                self._zookeeper.delete(path)
            except NoNodeError:
                log.debug("earlier_registration_gone", broker=self.broker_id)
            return
        other = znodes.BrokerNode.decode(node.data, path)
        timeout = self._config.zookeeper_session_timeout_ms / 1000 * _EARLIER_LIFE_FACTOR
        if set(other.endpoints) == set(content.endpoints):
            log.info("waiting_for_end_of_earlier_session", broker=self.broker_id, timeout_s=timeout)
            if self._wait_until_gone(path, timeout):
                return
        raise RegistrationError(
            f"there is a live broker with id {self.broker_id}, registered with {', '.join(other.endpoints)}; "
            f"give this one another broker.id, or stop the other"
        )

    def _wait_until_gone(self, path: str, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while True:
            changed = threading.Event()
            if self._zookeeper.exists(path, watch=changed.set) is None:
                return True
            if not changed.wait(max(0.0, deadline - time.monotonic())):
                # The watch is not called while there is no connection.
                return self._zookeeper.exists(path) is None


def _endpoint(listener: Listener) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{listener.name}://{host}:{listener.port}"
