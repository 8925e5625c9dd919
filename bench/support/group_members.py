"""Members of many groups on a few connections: they join, and then only say that they are alive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.net.blocking_connection import BlockingConnection
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

MEMBERS: Final = 3
SESSION_TIMEOUT_MS: Final = 45_000
REBALANCE_TIMEOUT_MS: Final = 60_000

# In this version a member need not come twice to get its id.
_JOIN_VERSION: Final = 3
_SYNC_VERSION: Final = 3
_HEARTBEAT_VERSION: Final = 4
_PAUSE_S: Final = 0.002
_METADATA: Final = b"\x00\x00\x00\x00\x00\x01\x00\x05topic\xff\xff\xff\xff"
_ASSIGNMENT: Final = b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"


@dataclass(slots=True)
class Joined:
    """A member in its group's last generation."""

    group_id: str
    member_id: str = ""
    generation: int = -1


class Crew:
    """Several groups; their first members share a connection, and so do the second and the third ones."""

    def __init__(self, connect: Callable[[], BlockingConnection], group_ids: Sequence[str]) -> None:
        self._connections = [connect() for _ in range(MEMBERS)]
        self._rows = [[Joined(group_id) for group_id in group_ids] for _ in range(MEMBERS)]
        # By group, the generation that has all members.
        self._full: dict[str, int] = {}
        self.failures: list[str] = []
        self.heartbeats = 0

    def join(self) -> None:
        """Bring everybody in; one group after the other, all members of it together."""
        self._in_threads(self._join_row)

    def heartbeat(self, interval_s: float, until_s: float) -> None:
        """Let each member send a heartbeat in every interval, evenly spread, up to a moment."""
        self._in_threads(lambda number: self._heartbeat_row(number, interval_s, until_s))

    def close(self) -> None:
        """End the connections; the members are missed when their sessions end."""
        for connection in self._connections:
            connection.close()

    def _in_threads(self, call: Callable[[int], None]) -> None:
        def run(number: int) -> None:
            try:
                call(number)
            except Exception as error:
                self.failures.append(repr(error))

        threads = [threading.Thread(target=run, args=(number,)) for number in range(MEMBERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _join_row(self, number: int) -> None:
        for member in self._rows[number]:
            while not self.failures and self._full.get(member.group_id) != member.generation:
                if self._join(self._connections[number], member):
                    self._wait_for_the_others(self._connections[number], member)

    def _join(self, connection: BlockingConnection, member: Joined) -> bool:
        """Enter the next generation; say whether that led to an assignment."""
        request = JoinGroupRequest(
            group_id=member.group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=member.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=_METADATA)],
        )
        answer = connection.request(Api.JOIN_GROUP, _JOIN_VERSION, request)
        _expect(answer.error_code)
        member.member_id = answer.member_id
        assignments = [
            SyncGroupRequestAssignment(member_id=one.member_id, assignment=_ASSIGNMENT) for one in answer.members
        ]
        sync = SyncGroupRequest(
            group_id=member.group_id,
            generation_id=answer.generation_id,
            member_id=member.member_id,
            assignments=assignments,
        )
        synced = connection.request(Api.SYNC_GROUP, _SYNC_VERSION, sync)
        if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        _expect(synced.error_code)
        member.generation = answer.generation_id
        if len(assignments) == MEMBERS:
            self._full[member.group_id] = member.generation
        return True

    def _wait_for_the_others(self, connection: BlockingConnection, member: Joined) -> None:
        while not self.failures and self._full.get(member.group_id) != member.generation:
            if self._beat(connection, member) != ErrorCode.NONE:
                return
            time.sleep(_PAUSE_S)

    def _heartbeat_row(self, number: int, interval_s: float, until_s: float) -> None:
        row, connection = self._rows[number], self._connections[number]
        step_s = interval_s / len(row)
        due_s = time.perf_counter()
        while due_s < until_s:
            for member in row:
                time.sleep(max(0.0, due_s - time.perf_counter()))
                _expect(self._beat(connection, member))
                self.heartbeats += 1
                due_s += step_s

    def _beat(self, connection: BlockingConnection, member: Joined) -> int:
        request = HeartbeatRequest(
            group_id=member.group_id, generation_id=member.generation, member_id=member.member_id
        )
        code: int = connection.request(Api.HEARTBEAT, _HEARTBEAT_VERSION, request).error_code
        return code


def _expect(code: int) -> None:
    if code != ErrorCode.NONE:
        raise RuntimeError(ErrorCode.of(code).name)
