"""The state of a process, as `ottla status` shows it."""

from __future__ import annotations

import http.client
from enum import StrEnum

import msgspec

from ottla.client.local_cluster import zookeeper
from ottla.client.local_cluster.ports import is_accepting
from ottla.client.local_cluster.record import ProcessRecord, Role

# A broker answers from a dedicated thread.
HEALTH_TIMEOUT_S = 1.0
HEALTH_BYTES_MAX = 64 * 1024


class ProcessState(StrEnum):
    """The state of a process."""

    RUNNING = "running"
    STARTING = "starting"
    STOPPING = "stopping"
    # Stopped on purpose, or never started.
    STOPPED = "stopped"
    DIED = "died"


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One object of `ottla status --format json`; the pid is set only for a running process.

    The partition counts are null for ZooKeeper, and for a broker that does not answer.
    """

    role: Role
    id: int
    pid: int | None
    host: str
    port: int
    http_port: int | None
    state: ProcessState
    is_controller: bool | None = None
    leaders: int | None = None
    under_replicated: int | None = None


class _Health(msgspec.Struct, frozen=True):
    """The fields of a broker's `/health` that we read."""

    is_controller: bool | None = None
    leaders: int | None = None
    under_replicated: int | None = None


def status(process: ProcessRecord) -> ProcessStatus:
    """Return the state of a process."""
    running = process.is_running()
    health = _health(process) if running and process.http_port is not None else _Health()
    return ProcessStatus(
        role=process.role,
        id=process.id,
        pid=process.pid if running else None,
        host=process.host,
        port=process.port,
        http_port=process.http_port,
        state=_state(process, running=running),
        is_controller=health.is_controller,
        leaders=health.leaders,
        under_replicated=health.under_replicated,
    )


def _health(process: ProcessRecord) -> _Health:
    connection = http.client.HTTPConnection(process.host, process.http_port, timeout=HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/health")
        return msgspec.json.decode(connection.getresponse().read(HEALTH_BYTES_MAX), type=_Health)
    except (OSError, http.client.HTTPException, msgspec.MsgspecError):
        return _Health()
    finally:
        connection.close()


def _state(process: ProcessRecord, *, running: bool) -> ProcessState:
    if not running:
        return ProcessState.STOPPED if process.pid is None or process.stopping else ProcessState.DIED
    if process.stopping:
        return ProcessState.STOPPING
    serves = zookeeper.is_serving if process.role is Role.ZOOKEEPER else is_accepting
    return ProcessState.RUNNING if serves(process.host, process.port) else ProcessState.STARTING
