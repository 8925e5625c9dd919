"""The last things that happened to a broker, for the timeline of the console.

Every change of the broker's state is logged, so the log is the source: a processor of log lines keeps those of the
first table below, whatever the log level is. Lines that are written for each request or record must never be in the
table. What clients change comes from where the audit stream begins, whatever `ottla.audit` says.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import structlog

_KEPT: Final = 1_000
_TEXT_MAX: Final = 500
_NAMED_MAX: Final = 10


class _Row(NamedTuple):
    """The kind of an event, and the words for it; fields of the log line stand in braces."""

    kind: str
    text: str


_ROWS: Final[Mapping[str, _Row]] = {
    "broker_registered": _Row("broker", "broker {broker} joined the cluster"),
    "brokers_joined": _Row("broker", "the controller sees new brokers: {brokers}"),
    "brokers_left": _Row("broker", "the controller sees that brokers are gone: {brokers}"),
    "broker_shutting_down": _Row("broker", "broker {broker} hands over {led} partitions to stop"),
    "broker_must_stop": _Row("broker", "the broker must stop: {error}"),
    "controlled_shutdown_done": _Row("broker", "broker {broker} has handed over its partitions"),
    "shutdown_is_not_controlled": _Row("broker", "broker {broker} stops without handing over all partitions"),
    "controller_elected": _Row("controller", "broker {broker} became the controller, epoch {epoch}"),
    "controller_resigned": _Row("controller", "broker {broker} is no longer the controller"),
    "controller_cut_off": _Row("controller", "the controller lost ZooKeeper: {reason}"),
    "controller_moved": _Row("controller", "another broker is the controller: {reason}"),
    "roles_taken": _Row("leader", "took {count} roles: {roles}"),
    "leaders_rebalanced": _Row("leader", "elects preferred leaders of {count} partitions"),
    "unclean_leader_elected": _Row("leader", "unclean election of {partition}: broker {leader}; records may be lost"),
    "partitions_without_leader": _Row("leader", "{count} partitions have no leader: {partitions}"),
    "partition_has_no_live_replica": _Row("leader", "{partition} has no live replica"),
    "isr_changed": _Row("isr", "ISR of {count} partitions changed: {partitions}"),
    "follower_starts_anew": _Row("isr", "{partition} starts again from the leader's first offset {start}"),
    "fetcher_cannot_reach_leader": _Row("isr", "{fetcher} cannot reach the leader: {error}"),
    "fetcher_reaches_leader_again": _Row("isr", "{fetcher} reaches the leader again"),
    "zookeeper_state": _Row("session", "ZooKeeper session: {state}"),
    "zookeeper_session_expired": _Row("session", "the ZooKeeper session expired"),
    "zookeeper_session_renewed": _Row("session", "the ZooKeeper session was renewed"),
    "topic_options_changed": _Row("option", "options of topic {topic} changed"),
    "broker_options_changed": _Row("option", "options of broker {entity} changed"),
    "certificates_reloaded": _Row("security", "certificates of listener {listener} were reloaded"),
    "topic_deleted": _Row("topic", "topic {topic} was deleted"),
    "partitions_created": _Row("topic", "{count} partitions were created: {partitions}"),
    "reassignment_started": _Row("topic", "{partition} moves to other brokers"),
    "reassignment_done": _Row("topic", "{partition} has moved to brokers {replicas}"),
    "balance_planned": _Row("topic", "the controller balances the cluster: {partitions} partitions move"),
    "moves_planned": _Row("topic", "{count} partitions are to move, {copied} of them with a copy"),
    "moves_resumed": _Row("topic", "the new controller goes on with {count} moves"),
    "moves_done": _Row("topic", "all planned moves are done"),
    "log_directory_offline": _Row("disk", "log directory {directory} failed, with {partitions} partitions"),
    "log_directory_low_on_space": _Row("disk", "{reason}"),
    "log_directory_has_space_again": _Row("disk", "log directory {directory} has space again"),
    "broker_lost_log_dir": _Row("disk", "broker {broker} lost a log directory"),
    "replica_damaged": _Row("disk", "the replica of {partition} is damaged"),
    "replica_set_aside": _Row("disk", "the replica of {partition} was set aside: {reason}"),
    "replica_moved": _Row("disk", "the replica of {partition} moved to {directory}"),
    "transaction_timed_out": _Row("transaction", "the transaction of {transactional_id} timed out"),
    "accepting_paused": _Row("connections", "listener {listener} accepts no connections for a while: {error}"),
}

# What clients change; these have a principal and a resource.
_CHANGE_ROWS: Final[Mapping[str, _Row]] = {
    "topic_created": _Row("topic", "{principal} created topic {topic}"),
    "topic_deleted": _Row("topic", "{principal} deleted topic {topic}"),
    "topic_undeleted": _Row("topic", "{principal} brought topic {topic} back"),
    "partitions_created": _Row("topic", "{principal} added partitions to topic {topic}"),
    "replicas_reassigned": _Row("topic", "{principal} moves {resource}"),
    "options_altered": _Row("option", "{principal} changed options of {resource}: {change}"),
    "quotas_altered": _Row("option", "{principal} changed quotas: {resource}"),
    "user_altered": _Row("security", "{principal} changed passwords of {resource}"),
    "acls_created": _Row("security", "{principal} added ACLs of {resource}"),
    "acls_deleted": _Row("security", "{principal} removed ACLs of {resource}"),
    "group_deleted": _Row("group", "{principal} deleted {resource}"),
    "delegation_token_created": _Row("security", "{principal} created a token: {resource}"),
    "delegation_token_renewed": _Row("security", "{principal} renewed a token: {resource}"),
    "delegation_token_expired": _Row("security", "{principal} ended a token: {resource}"),
}


class Event(NamedTuple):
    """Something that happened."""

    sequence: int
    at_ms: int
    kind: str
    text: str
    topic: str | None
    partition: int | None


class EventRing:
    """Keeps the last events. Any thread may add and read: a deque with a limit needs no lock for either."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._events: deque[Event] = deque(maxlen=kept)
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._events)

    def note(self, _logger: object, _method: str, fields: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """Keep a log line that is an event; as a processor of structlog, it returns the line as it is."""
        # The log lines of the audit stream have names that the controller uses as well, but they have a principal.
        if "principal" not in fields:
            self._keep(_ROWS, fields)
        return fields

    def note_change(self, fields: Mapping[str, Any]) -> None:
        """Keep what a client has changed."""
        self._keep(_CHANGE_ROWS, fields)

    def events(self) -> list[Event]:
        """Return the events, oldest first."""
        return list(self._events.copy())

    def _keep(self, rows: Mapping[str, _Row], fields: Mapping[str, Any]) -> None:
        row = rows.get(fields.get("event", ""))
        if row is not None:
            self._events.append(_event(next(self._numbers), row, fields))


# There is one log for the process, and one ring for it.
BROKER_EVENTS: Final = EventRing()


def _event(number: int, row: _Row, fields: Mapping[str, Any]) -> Event:
    topic, partition = fields.get("topic"), None
    kind, _, resource = str(fields.get("resource", "")).partition(":")
    if topic is None and kind == "Topic":
        topic = resource
    named = fields.get("partition")
    if isinstance(named, str) and "-" in named:
        topic, _, digits = named.rpartition("-")
        partition = int(digits) if digits.isdigit() else None
    text = row.text.format_map(_Shown({**fields, "topic": topic}))[:_TEXT_MAX]
    return Event(number, int(time.time() * 1000), row.kind, text, topic, partition)


class _Shown(dict[str, Any]):
    """The fields of a log line as words; a field that is missing does not fail the line."""

    def __getitem__(self, name: str) -> str:
        value = super().get(name)
        if isinstance(value, Mapping):
            return "; ".join(f"{key}: {_listed(each)}" for key, each in list(value.items())[:_NAMED_MAX])
        if isinstance(value, list | tuple | set | frozenset):
            return _listed(value)
        return "?" if value is None else str(value)

    def __missing__(self, name: str) -> str:
        return "?"


def _listed(value: Any) -> str:
    if not isinstance(value, list | tuple | set | frozenset):
        return str(value)
    parts = list(value)
    return ", ".join(map(str, parts[:_NAMED_MAX])) + (", ..." if len(parts) > _NAMED_MAX else "")
