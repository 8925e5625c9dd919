"""The network side of a broker: listeners, network coroutines, request queue and IO workers, put together."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ottla.broker.common.scratch import scratch_memory
from ottla.broker.config import BrokerConfig, Listener
from ottla.broker.network.acceptor import Acceptor
from ottla.broker.network.connection import Connection, Dispatch
from ottla.broker.network.connection_rates import AddressRate, ConnectionRates
from ottla.broker.network.frame_reader import SCRATCH_BYTES, FrameBuffers, FrameReader
from ottla.broker.network.limits import ConnectionCounts, NetworkLimits
from ottla.broker.network.processor import NetworkProcessor
from ottla.broker.network.tls.handshakes import Handshakes
from ottla.broker.network.tls.tls_connection import TlsConnection
from ottla.broker.network.workers import RequestQueue, Workers
from ottla.broker.security.listener_security import ListenerSecurity
from ottla.broker.security.sasl.sasl_listener import SaslListener
from ottla.broker.security.session import Session

RequestBytesMax = Callable[[Session, int], int]

_FREE_BUFFERS_BYTES_MAX = 64 * 1024 * 1024
_DEADLINES_CHECKED_SECONDS = 1.0


class Network:
    """Everything between the sockets and the handlers. Created, started and stopped on the loop."""

    def __init__(
        self,
        config: BrokerConfig,
        dispatch: Dispatch,
        security: Mapping[str, ListenerSecurity] | None = None,
        address_rate: AddressRate = lambda _address: None,
        request_bytes_max: RequestBytesMax | None = None,
    ) -> None:
        """`security` says how clients authenticate at each listener with TLS or SASL.

        `address_rate` returns how many connections an address may open a second. `request_bytes_max` returns how large
        a request may be, by the client and the key of the API.
        """
        self._config = config
        self.security = security or {}
        # By listener, so that strangers at one of them keep nobody out at another.
        self._handshakes: dict[str, Handshakes] = {}
        self._limits = NetworkLimits.of(config)
        self._loop = asyncio.get_running_loop()
        self._request_bytes_max = request_bytes_max
        queued_bytes_max = config.queued_max_request_bytes
        if queued_bytes_max > 0:
            # One request must always fit.
            queued_bytes_max = max(queued_bytes_max, config.socket_request_max_bytes)
        self._buffers = FrameBuffers(
            _FREE_BUFFERS_BYTES_MAX, queued_bytes_max if queued_bytes_max > 0 else float("inf"), self._on_room
        )
        self._scratch = scratch_memory(SCRATCH_BYTES)
        self._tasks: list[asyncio.Task[None]] = []
        self._acceptors: list[Acceptor] = []
        self.counts = ConnectionCounts(config)
        self._rates = ConnectionRates(config, address_rate)
        self.processors: list[NetworkProcessor] = []
        self.queue = RequestQueue(config.queued_max_requests, queued_bytes_max, self._on_room)
        self.workers = Workers(self.queue, dispatch, config.num_io_threads)

    def bind(self, listeners: Sequence[Listener]) -> list[int]:
        """Take the ports and return them. Raises OSError if one is taken.

        Until the start, connections are refused: a client that cannot connect asks another broker at once.
        """
        for listener in listeners:
            family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
            bound = socket.socket(family, socket.SOCK_STREAM)
            try:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._set_buffers(bound)
                bound.bind((listener.host, listener.port))
                bound.setblocking(False)
            except OSError as error:
                bound.close()
                raise _cannot_listen(listener.host, listener.port, error) from error
            processors = [
                NetworkProcessor(f"{listener.name}-{index}", self._limits, self.counts)
                for index in range(self._config.num_network_threads)
            ]
            self.processors += processors
            self._handshakes[listener.name] = Handshakes(listener.name)
            adopt = partial(self._adopt, listener.name)
            self._acceptors.append(
                Acceptor(listener.name, bound, processors, self.counts, self._rates, adopt, self._make_room)
            )
        return [acceptor.socket.getsockname()[1] for acceptor in self._acceptors]

    def _set_buffers(self, listening: socket.socket) -> None:
        """Set the buffer sizes of future connections: an accepted socket has those of the listening socket."""
        for option, size in (
            (socket.SO_SNDBUF, self._config.socket_send_buffer_bytes),
            (socket.SO_RCVBUF, self._config.socket_receive_buffer_bytes),
        ):
            if size >= 0:
                listening.setsockopt(socket.SOL_SOCKET, option, size)

    def start(self) -> None:
        """Listen on the ports, and serve clients. Raises OSError if somebody else listens on one by now."""
        for acceptor in self._acceptors:
            try:
                acceptor.socket.listen(self._config.socket_listen_backlog_size)
            except OSError as error:
                host, port = acceptor.socket.getsockname()[:2]
                raise _cannot_listen(host, port, error) from error
        self.workers.start()
        self._tasks = [self._loop.create_task(processor.run()) for processor in self.processors]
        self._tasks.append(self._loop.create_task(self._watch_deadlines()))
        for acceptor in self._acceptors:
            acceptor.start()

    async def stop(self, timeout_seconds: float) -> None:
        """Accept no more connections, answer requests that have arrived, then close everything."""
        for acceptor in self._acceptors:
            acceptor.stop()
        for processor in self.processors:
            for connection in processor:
                processor.set_reading(connection, False)
        await self._loop.run_in_executor(None, self.workers.stop, timeout_seconds)
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for processor in self.processors:
            processor.close_all()
        for handshakes in self._handshakes.values():
            handshakes.close()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply the options that may change while the broker runs: limits of connections, number of workers."""
        self._config = self._rates.config = config
        self.counts.reconfigure(config)
        self._make_room()
        self.workers.resize(config.num_io_threads)

    def connections(self) -> list[Connection]:
        """Every open connection."""
        return [connection for processor in self.processors for connection in processor]

    @property
    def bytes_sendfile(self) -> int:
        """Bytes sent to clients without a copy in this process, over all connections."""
        return self.counts.bytes_sendfile + sum(connection.bytes_sendfile for connection in self.connections())

    @property
    def bytes_copied(self) -> int:
        """Bytes that were copied to clients, over all connections."""
        return self.counts.bytes_copied + sum(connection.bytes_copied for connection in self.connections())

    def _adopt(self, listener: str, client: socket.socket, processor: NetworkProcessor) -> None:
        security = self.security.get(listener)
        reader = FrameReader(self._scratch, self._buffers, self._config.socket_request_max_bytes)
        if security is None or security.tls is None:
            connection = Connection(client, listener, processor, reader, self.queue)
        else:
            handshakes = self._handshakes[listener]
            connection = TlsConnection(client, listener, processor, reader, self.queue, security.tls, handshakes)
        if security is not None and security.sasl is not None:
            self._authenticate(connection, security.sasl)
        if self._request_bytes_max is not None:
            reader.any_size = self._config.ottla_request_max_bytes
            reader.max_size_of = partial(self._request_bytes_max, connection.session)
        processor.adopt(connection)
        if isinstance(connection, TlsConnection):
            connection.begin_handshake()

    def _make_room(self) -> None:
        """Close connections beyond the limit of the broker, first those that have been silent for the longest time."""
        if excess := self.counts.excess:
            clients = [each for each in self.connections() if not self._config.is_for_brokers_only(each.listener)]
            for connection in heapq.nsmallest(excess, clients, key=lambda each: each.last_read):
                connection.processor.discard(connection, "max.connections are open")

    def _authenticate(self, connection: Connection, sasl: SaslListener) -> None:
        """Accept only small requests until the client is authenticated."""
        connection.reader.max_size = sasl.frame_bytes_max
        connection.session.authentication = authentication = sasl.authentication(connection.session)

        def admit() -> None:
            connection.reader.max_size = self._config.socket_request_max_bytes

        authentication.on_done = admit

    def _on_room(self) -> None:
        self._loop.call_soon_threadsafe(self._resume)

    def _resume(self) -> None:
        for processor in self.processors:
            processor.resume()

    async def _watch_deadlines(self) -> None:
        while True:
            await asyncio.sleep(_DEADLINES_CHECKED_SECONDS)
            for processor in self.processors:
                processor.close_overdue()


def _cannot_listen(host: str, port: int, error: OSError) -> OSError:
    return OSError(error.errno, f"cannot listen on {host or '*'}:{port}: {error.strerror}")
