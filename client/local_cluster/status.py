"""The state of a process, as `ottla status` shows it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ottla.client.local_cluster import zookeeper
from ottla.client.local_cluster.ports import is_accepting
from ottla.client.local_cluster.record import ProcessRecord, Role


class State(StrEnum):
    """What a process does."""

    RUNNING = "running"
    STARTING = "starting"
    STOPPING = "stopping"
    # Stopped on purpose, or never started.
    STOPPED = "stopped"
    DIED = "died"


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One object of `ottla status --format json`; the pid is that of a process that runs."""

    role: Role
    id: int
    pid: int | None
    host: str
    port: int
    http_port: int | None
    state: State


def status(process: ProcessRecord) -> ProcessStatus:
    """Return the state of a process."""
    running = process.is_running()
    return ProcessStatus(
        role=process.role,
        id=process.id,
        pid=process.pid if running else None,
        host=process.host,
        port=process.port,
        http_port=process.http_port,
        state=_state(process, running=running),
    )


def _state(process: ProcessRecord, *, running: bool) -> State:
    if not running:
        return State.STOPPED if process.pid is None or process.stopping else State.DIED
    if process.stopping:
        return State.STOPPING
    serves = zookeeper.is_serving if process.role is Role.ZOOKEEPER else is_accepting
    return State.RUNNING if serves(process.host, process.port) else State.STARTING
