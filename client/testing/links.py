"""The network between the brokers of a test's cluster, and from each of them to ZooKeeper: relays that can be cut.

    python -m ottla.client.testing.links DIRECTORY BROKERS

Each broker has two ports: one where the other brokers reach it, and one where it reaches ZooKeeper. The first line of
output lists them. Then each line of input is `cut A B`, `heal A B` or `heal`, and is answered with a line when it is
done; A and B are broker ids or `zookeeper`. The process ends when its input ends.

While two members are cut off from each other, no data passes between them in either direction. Connections stay open,
and sent data waits, as on a network that loses every packet. /proc tells which broker opened a connection, so cuts
between brokers need Linux; they need no privileges.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

from ottla.client.local_cluster.cluster_dir import ClusterDir
from ottla.client.local_cluster.errors import ClusterError
from ottla.client.local_cluster.record import HOST, ClusterRecord

ZOOKEEPER: Final = "zookeeper"
_CHUNK_BYTES: Final = 64 * 1024
# A process connects as soon as it runs; its pid is in the record a moment later.
_LOOKUPS_MAX: Final = 50
_LOOKUP_PAUSE_S: Final = 0.02
# Columns of /proc/net/tcp.
_LOCAL: Final = 1
_REMOTE: Final = 2
_INODE: Final = 9

Pair = frozenset[str]


class Links:
    """All relays of a cluster. A cut pair has a closed gate in `_gates`."""

    def __init__(self, directory: ClusterDir, brokers: int) -> None:
        self._directory = directory
        self._brokers = [str(number + 1) for number in range(brokers)]
        self._gates: dict[Pair, asyncio.Event] = defaultdict(_open_gate)
        self._relaying: set[asyncio.Task[None]] = set()

    async def start(self) -> dict[str, tuple[int, int]]:
        """Listen; return for each broker the port for the other brokers, and its port for ZooKeeper."""
        return {name: (await self._listen(name, to_broker=True), await self._listen(name)) for name in self._brokers}

    def obey(self, line: str) -> None:
        """Cut or heal."""
        verb, *names = line.split()
        pair = frozenset(names)
        if verb == "cut":
            self._gates[pair].clear()
            return
        for each in [pair] if names else list(self._gates):
            self._gates[each].set()

    async def _listen(self, broker: str, *, to_broker: bool = False) -> int:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._relaying.add(task)
            try:
                # Cancelled at the end of the process; the other side sees a broken connection.
                with contextlib.suppress(OSError, ClusterError, asyncio.CancelledError):
                    pair = frozenset((broker, await self._dialer(writer) if to_broker else ZOOKEEPER))
                    await self._relay(reader, writer, self._gates[pair], broker if to_broker else ZOOKEEPER)
            finally:
                self._relaying.discard(task)
                writer.close()

        server = await asyncio.start_server(accepted, HOST, 0)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event, target: str
    ) -> None:
        await gate.wait()
        far_reader, far_writer = await asyncio.open_connection(HOST, self._port(target))
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, far_writer, gate))
                both.create_task(_pump(far_reader, writer, gate))
        except* OSError:
            pass
        finally:
            far_writer.close()

    def _record(self) -> ClusterRecord:
        record = self._directory.read()
        if record is None:
            raise ClusterError("the cluster is gone")
        return record

    def _port(self, target: str) -> int:
        record = self._record()
        if target == ZOOKEEPER:
            return record.zookeepers[0].port
        return next(each.inter_broker_port or each.port for each in record.brokers if str(each.id) == target)

    async def _dialer(self, writer: asyncio.StreamWriter) -> str:
        """Return the broker that a connection comes from; "" if it is not from a broker."""
        _, port = writer.get_extra_info("peername")
        _, our_port = writer.get_extra_info("sockname")
        for _ in range(_LOOKUPS_MAX):
            socket = f"socket:[{_inode(port, our_port)}]"
            for broker in self._record().brokers:
                if broker.pid is not None and socket in _open_files(broker.pid):
                    return str(broker.id)
            await asyncio.sleep(_LOOKUP_PAUSE_S)
        return ""


def _open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    """Forward bytes and the end of the stream, but nothing while the gate is closed."""
    while data := await reader.read(_CHUNK_BYTES):
        await gate.wait()
        writer.write(data)
        await writer.drain()
    await gate.wait()
    writer.write_eof()


def _inode(port: int, remote_port: int) -> str:
    """Return the inode of the socket with these ports, which identifies its process."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        columns = line.split()
        ports = [int(columns[index].partition(":")[2], 16) for index in (_LOCAL, _REMOTE)]
        if ports == [port, remote_port]:
            return columns[_INODE]
    return ""


def _open_files(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            # A descriptor may be closed while we look.
            with contextlib.suppress(OSError):
                found.add(str(entry.readlink()))
    return found


async def main(directory: Path, brokers: int) -> None:
    """Relay until the input ends."""
    links = Links(ClusterDir(directory), brokers)
    _answer(json.dumps(await links.start()))
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        links.obey(line)
        _answer("done")


def _answer(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
