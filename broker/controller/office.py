"""What the parts of one term share: the context, ZooKeeper, the channels to brokers, and the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from msgspec import Struct, field

from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.common.clocks import Clocks
from ottla.broker.config import BrokerConfig
from ottla.broker.controller.context import ControllerContext
from ottla.broker.controller.election import Elected, Fence
from ottla.broker.controller.loading import ClusterReader
from ottla.broker.controller.messages.batch import ControllerRequest
from ottla.broker.controller.messages.channel import Channels
from ottla.broker.controller.messages.outbox import Outbox
from ottla.broker.controller.schedule import Event, Schedule
from ottla.broker.controller.state_store import StateStore
from ottla.broker.controller.stats import ElectionCounters
from ottla.broker.controller.transitions import Transitions
from ottla.client.net.blocking_connection import BlockingConnection
from ottla.client.net.connector import Connector
from ottla.protocol.api import Api

log = structlog.get_logger(__name__)

# Called with a broker, the request to it and its response.
OnAnswer = Callable[[int, Any, Any], None]


class Notice(Struct, frozen=True):
    """A watch that posts an event; ZooKeeper takes equal ones for one watch."""

    office: Office
    handler: Callable[..., None]
    arguments: tuple[Any, ...] = ()

    def __call__(self) -> None:
        self.office.post(self.handler, *self.arguments)


class ControllerTools(Struct, frozen=True, eq=False):
    """What all terms of a controller use. The controller makes it once."""

    zookeeper: ZooKeeper
    broker_id: int
    # Returns the broker's current options.
    config: Callable[[], BrokerConfig]
    # Connects to other brokers.
    connector: Connector
    clocks: Clocks
    # Queues an event for the controller's thread, from any thread.
    queue_event: Callable[[Event], None]
    schedule: Schedule = field(default_factory=Schedule)
    counters: ElectionCounters = field(default_factory=ElectionCounters)


class Office:
    """What the parts of one term share. Used on the controller's thread, except where a method says otherwise."""

    def __init__(self, tools: ControllerTools, elected: Elected) -> None:
        zookeeper = tools.zookeeper
        self.zookeeper = zookeeper
        self.config = tools.config
        self.monotonic_ms = tools.clocks.monotonic_ms
        self._tools = tools
        self.context = ControllerContext(tools.broker_id, elected.epoch)
        self.fence = Fence(zookeeper, elected)
        self.reader = ClusterReader(zookeeper, self.fence, tools.config)
        self.store = StateStore(zookeeper, self.fence, self.context.broker_epoch)
        self.outbox = Outbox(self.context, tools.config().inter_broker_listener.name)
        self.transitions = Transitions(
            self.context, self.store, self.outbox, unclean_topics=self.reader.unclean_topics, counters=tools.counters
        )
        self.channels = Channels(self.connection, self._answered, self._fell_behind)
        # Called with the answers of brokers, and with a broker whose queue was dropped.
        self.on_answer: dict[Api, list[OnAnswer]] = {}
        self.on_fell_behind: Callable[[int], None] = lambda _broker: None
        # Adds to the outbox after the messages of an event were sent.
        self.after_event: Callable[[], None] = lambda: None
        self._is_closed = False

    # Events

    def post(self, handler: Callable[..., None], *arguments: object) -> None:
        """Queue an event of this term, from any thread; it is dropped if the term has ended by then."""
        self._tools.queue_event(self._event(handler, arguments))

    def post_after(self, delay_seconds: float, handler: Callable[..., None], *arguments: object) -> None:
        """Queue an event of this term for later."""
        self._tools.schedule.add(delay_seconds, self._event(handler, arguments))

    def notice(self, handler: Callable[..., None], *arguments: object) -> Notice:
        """Return a watch that posts an event."""
        return Notice(self, handler, arguments)

    def _event(self, handler: Callable[..., None], arguments: tuple[object, ...]) -> Event:
        def event() -> None:
            if not self._is_closed:
                handler(*arguments)
                self.finish()

        return event

    def finish(self) -> None:
        """Send the messages of an event, and then those that follow from it."""
        self.send()
        self.after_event()
        self.send()

    def send(self) -> None:
        """Send the outbox now: later messages of this event are sent after it."""
        self.channels.send(self.outbox.take())

    def close(self) -> None:
        """End the term: nothing more is written or sent."""
        self._is_closed = True
        self.channels.close_all()

    # Brokers

    def connection(self, broker: int) -> BlockingConnection | None:
        """Return a new connection to a live broker, opened when it is used; None if the broker has no address."""
        config = self.config()
        listener = config.control_plane_listener_name or config.inter_broker_listener.name
        for endpoint in self.context.brokers[broker].node.parsed_endpoints():
            if endpoint.listener_name == listener:
                return self._tools.connector.connection(
                    endpoint.address.host,
                    endpoint.address.port,
                    client_id=str(self.context.controller_id),
                    connect_timeout_ms=config.socket_connection_setup_timeout_ms,
                    connect_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
                    request_timeout_ms=config.controller_socket_timeout_ms,
                )
        log.error("broker_lacks_listener", broker=broker, listener=listener)
        return None

    def _answered(self, broker: int, request: ControllerRequest, response: Any) -> None:
        for handler in self.on_answer.get(request.api, ()):
            self.post(handler, broker, request.message, response)

    def _fell_behind(self, broker: int) -> None:
        self.post(self.on_fell_behind, broker)
