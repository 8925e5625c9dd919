"""Record what Kafka's clients and brokers really say to each other, as data for the protocol tests.

    .venv/bin/python -m scripts.record_frames [--out tests/data/frames] [--only CLIENT ...]

Two Apache Kafka 3.9.1 brokers and a ZooKeeper run on loopback. Each listener is advertised at the port
of a proxy that passes bytes on unchanged and keeps examples of the frames that go by; the clients of
`scripts.record_workloads` then do all that they can. Needs Java 17; kcat is used where it is installed.
`scripts.record_cluster` says where the jars of Kafka are looked for and how they get there.

Each client has its file `<client>.tsv`, one example a line, two at most for an API version and direction:

    request|response <TAB> api key <TAB> api name <TAB> api version <TAB> hex of header and body

The version of a response is that of its request, except that ApiVersions answers a version which it does
not know in version 0. The client `inter-broker` is the traffic between the two brokers, recorded under
several values of inter.broker.protocol.version.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from kafka.protocol.api_key import ApiKey
from scripts.record_cluster import Cluster
from scripts.record_tools import INTER_BROKER_VERSIONS, make_brokers_talk, run_java_tools, run_kcat
from scripts.record_workloads import run_aiokafka, run_confluent_kafka, run_kafka_python

from ottla.protocol.frame import FrameSplitter

log = logging.getLogger("record_frames")

LOOPBACK = "127.0.0.1"
FRAME_BYTES_MAX = 64 * 1024 * 1024
EXAMPLE_BYTES_MAX = 8 * 1024
INTER_BROKER = "inter-broker"
WORKLOADS = {
    "confluent-kafka": run_confluent_kafka,
    "aiokafka": run_aiokafka,
    "kafka-python": run_kafka_python,
    "java": run_java_tools,
    "kcat": run_kcat,
}

Direction = Literal["request", "response"]


class Kind(NamedTuple):
    """What two examples are kept of."""

    client: str
    direction: Direction
    api_key: int
    api_version: int


class Recorder:
    """Keeps the examples. Only the proxies' thread touches it until they are closed."""

    def __init__(self, wanted: set[str]) -> None:
        """Start without examples, and take only those of the wanted clients."""
        self.wanted = wanted
        # The client that is on.
        self.client = ""
        self._examples: dict[Kind, list[bytes]] = defaultdict(list)
        # The data must not tell on which machine it was recorded.
        hosts = {socket.gethostname().encode(), socket.getfqdn().encode()} - {b"localhost"}
        patterns = [rb"\b" + re.escape(host) + rb"\b" for host in hosts]
        patterns += [re.escape(bytes(path)) for path in (Path.home(), Path.cwd())]
        self._private = re.compile(rb"|".join(patterns))

    def add(self, kind: Kind, body: bytes) -> None:
        """Keep the smallest and the largest example of moderate size."""
        if kind.client not in self.wanted:
            return
        examples = self._examples[kind]
        if len(body) > EXAMPLE_BYTES_MAX or self._private.search(body) or len(body) in map(len, examples):
            return
        examples.append(body)
        examples.sort(key=len)
        del examples[1:-1]

    def write(self, folder: Path) -> None:
        """Write one file for each client."""
        lines: dict[str, list[str]] = defaultdict(list)
        for kind, examples in sorted(self._examples.items()):
            name = ApiKey(kind.api_key).name
            lines[kind.client] += [
                f"{kind.direction}\t{kind.api_key}\t{name}\t{kind.api_version}\t{body.hex()}\n" for body in examples
            ]
        folder.mkdir(parents=True, exist_ok=True)
        for client, client_lines in lines.items():
            (folder / f"{client}.tsv").write_text("".join(client_lines))
            pairs = {(kind.api_key, kind.api_version) for kind in self._examples if kind.client == client}
            log.info("%s: %d pairs of API and version, %d frames", client, len(pairs), len(client_lines))


class Conversation:
    """The frames of one connection: finds for each response the request that it answers."""

    def __init__(self, recorder: Recorder, client: str) -> None:
        """Record on behalf of `client`."""
        self._recorder = recorder
        self._client = client
        self._waiting: dict[int, tuple[int, int]] = {}
        self._has_headers = True

    def request(self, body: bytes) -> None:
        """Record a request, and remember what its response will be."""
        if not self._has_headers:
            return
        api_key, api_version, correlation_id = struct.unpack_from(">hhi", body)
        self._waiting[correlation_id] = api_key, api_version
        self._recorder.add(Kind(self._client, "request", api_key, api_version), body)
        # After SaslHandshake v0, tokens go back and forth without headers.
        self._has_headers = (api_key, api_version) != (ApiKey.SaslHandshake, 0)

    def response(self, body: bytes) -> None:
        """Record a response under the version of its request."""
        if not self._waiting:
            return
        (correlation_id,) = struct.unpack_from(">i", body)
        if correlation_id not in self._waiting:
            return
        api_key, api_version = self._waiting.pop(correlation_id)
        unsupported_version = 35
        if api_key == ApiKey.ApiVersions and struct.unpack_from(">h", body, 4) == (unsupported_version,):
            api_version = 0
        self._recorder.add(Kind(self._client, "response", api_key, api_version), body)


class Proxies:
    """The proxies in front of the brokers' listeners, on an event loop in a thread of their own."""

    def __init__(self, recorder: Recorder) -> None:
        """Start the loop."""
        self._recorder = recorder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()

    def open(self, upstream_port: int, client: str = "") -> int:
        """Listen in front of a port of a broker; without a client, record for the one that is on."""

        async def listen() -> int:
            server = await asyncio.start_server(
                lambda reader, writer: self._serve(reader, writer, upstream_port, client), LOOPBACK, 0
            )
            port: int = server.sockets[0].getsockname()[1]
            return port

        return asyncio.run_coroutine_threadsafe(listen(), self._loop).result(timeout=30)

    def close(self) -> None:
        """Stop the loop; connections that are still open are left to the end of the process."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream_port: int, client: str
    ) -> None:
        conversation = Conversation(self._recorder, client or self._recorder.client)
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(LOOPBACK, upstream_port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            pump(reader, upstream_writer, conversation.request),
            pump(upstream_reader, writer, conversation.response),
        )


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: Callable[[bytes], None]) -> None:
    """Pass bytes on until one side closes, and record the frames in them."""
    splitter = FrameSplitter(FRAME_BYTES_MAX)
    try:
        while data := await reader.read(64 * 1024):
            for body in splitter.feed(data):
                record(body)
            writer.write(data)
            await writer.drain()
    except OSError as error:
        log.debug("a connection broke: %s", error)
    finally:
        writer.close()


def record(recorder: Recorder, proxies: Proxies) -> None:
    """Drive every wanted client, then let brokers of several protocol versions talk."""
    workloads = {client: workload for client, workload in WORKLOADS.items() if client in recorder.wanted}
    if workloads:
        with Cluster(proxies.open, INTER_BROKER) as cluster:
            for client, workload in workloads.items():
                log.info("recording %s", client)
                recorder.client = client
                workload(cluster)
    if INTER_BROKER in recorder.wanted:
        recorder.client = ""
        for version in INTER_BROKER_VERSIONS:
            log.info("recording brokers of protocol version %s", version)
            with Cluster(proxies.open, INTER_BROKER, version) as cluster:
                make_brokers_talk(cluster)


def main() -> None:
    """Record everything, or only some clients."""
    clients = [*WORKLOADS, INTER_BROKER]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("tests/data/frames"))
    parser.add_argument("--only", nargs="+", default=clients, choices=clients, metavar="CLIENT")
    parser.add_argument("--verbose", action="store_true", help="tell which steps failed")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    log.setLevel(logging.DEBUG if arguments.verbose else logging.INFO)
    recorder = Recorder(set(arguments.only))
    proxies = Proxies(recorder)
    try:
        record(recorder, proxies)
    finally:
        proxies.close()
        # Also when something broke: what was recorded until then took minutes.
        recorder.write(arguments.out)


if __name__ == "__main__":
    main()
