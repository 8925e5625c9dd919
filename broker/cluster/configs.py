"""Options that are set while brokers run: reading, changing, and hearing of changes.

To change the options of an entity, a broker writes /config/<type>/<name> and then adds a note below /config/changes.
Every broker watches the notes and reads again what they name.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final

import structlog
from msgspec import Struct

from ottla.broker.cluster import znodes
from ottla.broker.cluster.change_notes import ChangeNotes, add_note
from ottla.broker.cluster.operations import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
    ZooKeeperUnavailableError,
)
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.config import ConfigType, Option
from ottla.protocol.errors import ErrorCode, KafkaError

log = structlog.get_logger(__name__)

OnConfigChange = Callable[[str, str], None]

_ATTEMPTS_MAX: Final = 10


class ConfigOperation(IntEnum):
    """What to do with one option, by the numbers of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(Struct, frozen=True):
    """A change of one option. Every operation but DELETE needs a value."""

    name: str
    operation: ConfigOperation
    value: str | None


# Old and new values by option; None where there was or is none.
ConfigDifference = Mapping[str, tuple[str | None, str | None]]


def config_difference(before: Mapping[str, str], after: Mapping[str, str]) -> ConfigDifference:
    """Return the options whose values differ."""
    return {
        name: (before.get(name), after.get(name))
        for name in (*before, *(each for each in after if each not in before))
        if before.get(name) != after.get(name)
    }


def changed_config(
    current: Mapping[str, str],
    changes: Iterable[ConfigChange],
    option: Callable[[str], Option[object] | None],
    effective: Callable[[str], str | None],
) -> dict[str, str]:
    """Return the overrides after some changes.

    `option` finds the row of a name, and `effective` the value that APPEND and SUBTRACT start from where none is set.
    """
    config = dict(current)
    seen: set[str] = set()
    for change in changes:
        if change.name in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.name} is changed twice in one request")
        seen.add(change.name)
        if change.operation is ConfigOperation.DELETE:
            config.pop(change.name, None)
        elif change.value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{change.name} has no value")
        elif change.operation is ConfigOperation.SET:
            config[change.name] = change.value
        else:
            row = option(change.name)
            if row is None or row.kind.type is not ConfigType.LIST:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{change.name} is not a list to append to or remove from")
            items = _items(config.get(change.name, effective(change.name) or ""))
            named = _items(change.value)
            if change.operation is ConfigOperation.APPEND:
                items += [item for item in named if item not in items]
            else:
                items = [item for item in items if item not in named]
            config[change.name] = ",".join(items)
    return config


class Configs:
    """The options of the cluster's entities. Any worker thread may use it."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    def read(self, entity_type: str, name: str) -> Mapping[str, str]:
        """Return the options of an entity; empty if it has no node."""
        path = znodes.config_path(entity_type, name)
        node = self._zookeeper.read_or_none(path)
        return {} if node is None or not node.data else znodes.ConfigNode.decode(node.data, path).config

    def of_broker(self, broker_id: int) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return what is set for a broker, and for all, as `BrokerConfig.with_dynamic` takes it."""
        per_broker = self.read(znodes.BROKER_CONFIGS, str(broker_id))
        return per_broker, self.read(znodes.BROKER_CONFIGS, znodes.DEFAULT_ENTITY)

    def names(self, entity_type: str) -> list[str]:
        """Return the entities of a type that have a node, which may be empty."""
        return self._zookeeper.children_many([f"/config/{entity_type}"])[0]

    def read_all(self, entity_type: str, *, skip_malformed: bool = False) -> dict[str, Mapping[str, str]]:
        """Return the options of all entities of a type, without unreadable ones if `skip_malformed`."""
        return self.read_types([entity_type], skip_malformed=skip_malformed)[entity_type]

    def read_types(
        self, entity_types: Sequence[str], *, skip_malformed: bool = False
    ) -> dict[str, dict[str, Mapping[str, str]]]:
        """Return the same for many types; one may be `users/<user>/clients`."""
        listed = self._zookeeper.children_many([f"/config/{each}" for each in entity_types])
        entities = [(each, name) for each, names in zip(entity_types, listed, strict=True) for name in names]
        paths = [znodes.config_path(*entity) for entity in entities]
        read: dict[str, dict[str, Mapping[str, str]]] = {each: {} for each in entity_types}
        for (entity_type, name), path, node in zip(entities, paths, self._zookeeper.read_many(paths), strict=True):
            if node is None or not node.data:
                continue
            try:
                read[entity_type][name] = znodes.ConfigNode.decode(node.data, path).config
            except znodes.MalformedNodeError as error:
                if not skip_malformed:
                    raise
                log.error("config_unreadable", reason=str(error))
        return read

    def change(
        self, entity_type: str, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> ConfigDifference:
        """Replace the options of an entity by what `change` returns for them, and notify all brokers.

        Returns what is different. `change` may be called again if somebody else changes the same entity; it raises
        KafkaError to refuse.
        """
        path = znodes.config_path(entity_type, name)
        for _ in range(_ATTEMPTS_MAX):
            node = self._zookeeper.read_or_none(path)
            current = {} if node is None or not node.data else znodes.ConfigNode.decode(node.data, path).config
            wanted = dict(change(current))
            content = znodes.ConfigNode(config=wanted).encode()
            try:
                if node is None:
                    self._zookeeper.create(path, content)
                else:
                    self._zookeeper.write(path, content, node.stat.version)
                break
            except NoNodeError:
                # The node of a user's client id is below that of the user, who may have no options.
                self._zookeeper.ensure_path(path.rpartition("/")[0])
            except (BadVersionError, NodeExistsError):
                continue
        else:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the config of {name} keeps being changed by others")
        note = znodes.ConfigChangeNode(entity_path=f"{entity_type}/{name}").encode()
        add_note(self._zookeeper, znodes.CONFIG_CHANGES, znodes.CONFIG_CHANGE_PREFIX, note)
        return config_difference(current, wanted)


class ConfigChanges:
    """Calls back for every change, on a thread of its own, in the order of the changes."""

    def __init__(self, zookeeper: ZooKeeper, on_config_change: OnConfigChange, *, clock: Callable[[], int]) -> None:
        """`on_config_change` is called with the type and name of an entity, and reads its options again."""
        self._zookeeper = zookeeper
        self._on_config_change = on_config_change
        self._notes = ChangeNotes(zookeeper, znodes.CONFIG_CHANGES, znodes.CONFIG_CHANGE_PREFIX, clock)
        self._last = -1
        # True to read the notes, None to stop.
        self._wakes: queue.SimpleQueue[bool | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="config-changes", daemon=True)

    def start(self) -> None:
        """Call back for the notes that exist, and for all that follow."""
        self._thread.start()
        self._wake()

    def close(self) -> None:
        """Stop listening."""
        self._wakes.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout=60)

    def session_expired(self) -> None:
        """Do nothing: the watch is gone, and calls fail until there is a new session."""

    def session_renewed(self) -> None:
        """Read the notes that came meanwhile, and watch again."""
        self._wake()

    def _wake(self) -> None:
        self._wakes.put(True)

    def _run(self) -> None:
        while self._wakes.get() is not None:
            try:
                self._take_notes()
            except SessionExpiredError:
                log.debug("config_changes_wait_for_session")
            except ZooKeeperUnavailableError as error:
                # The watch may not have been set. The next call waits for the connection, so this does not spin.
                log.warning("config_changes_wait_for_zookeeper", reason=str(error))
                self._wake()
            except ZooKeeperError as error:
                log.error("config_changes_not_read", reason=str(error))

    def _take_notes(self) -> None:
        paths = self._notes.paths(self._wake)
        fresh = {number: path for number, path in paths.items() if number > self._last}
        for (number, path), node in zip(fresh.items(), self._zookeeper.read_many(list(fresh.values())), strict=True):
            if node is not None:
                self._tell(node.data, path)
                self._last = number
        self._notes.delete_old(paths.values())

    def _tell(self, data: bytes, path: str) -> None:
        try:
            entity_type, name = znodes.ConfigChangeNode.decode(data, path).entity()
            log.info("config_changed", type=entity_type, name=name)
            self._on_config_change(entity_type, name)
        except (SessionExpiredError, ZooKeeperUnavailableError):
            # Not delivered: the same note is read again when ZooKeeper is back.
            raise
        except Exception as error:
            if isinstance(error, KafkaError) and error.code is ErrorCode.REQUEST_TIMED_OUT:
                # The same error, as `ClusterRegistry` raises it.
                raise ZooKeeperUnavailableError(str(error)) from error
            # One unreadable entity must not hide changes of the others.
            log.exception("config_change_failed", note=path)


def _items(text: str) -> list[str]:
    return [item for part in text.split(",") if (item := part.strip())]
