"""Topics in step: those of the source exist in the destination, with as many partitions and the same options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import ConfigDescription, ConfigResource, NewTopic, TopicDescription
from ottla.client.errors import KafkaError, TopicAlreadyExistsError
from ottla.client.mirror.selection import Selection
from ottla.protocol.config_resources import ConfigResourceType

# The source of an option that was set for the topic itself.
_OF_TOPIC: Final = "topic"
# What names brokers of one cluster.
_OF_ONE_CLUSTER: Final = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
_TIMESTAMP_TYPE: Final = "message.timestamp.type"
_MIN_ISR: Final = "min.insync.replicas"
_CLEANUP_POLICY: Final = "cleanup.policy"
# DescribeConfigs of very many topics in one request would be a large response.
_DESCRIBED_AT_ONCE: Final = 200


class MirroredTopic(NamedTuple):
    """A topic that both clusters have."""

    name: str
    num_partitions: int
    is_compacted: bool


class TopicState(NamedTuple):
    """A topic with the options that were set for it, and all names of options that its cluster knows."""

    description: TopicDescription
    options: Mapping[str, str]
    known: frozenset[str]
    is_compacted: bool


class Topics:
    """Keeps topics in step."""

    def __init__(self, source: Admin, destination: Admin, selection: Selection, *, sets_timestamps: bool) -> None:
        """`sets_timestamps`: the destination takes times of records as they are, whatever the topic says."""
        self._source = source
        self._destination = destination
        self._selection = selection
        self._sets_timestamps = sets_timestamps
        # By topic, what cannot be the same in the destination.
        self.notes: dict[str, list[str]] = {}

    async def mirror(self) -> list[MirroredTopic]:
        """Create and change topics in the destination; return those that can be copied. KafkaError if that fails."""
        wanted = await topic_states(self._source, self._selection)
        present = await topic_states(self._destination, self._selection)
        missing = [state for name, state in wanted.items() if name not in present]
        if missing:
            await self._create(missing)
            present = await topic_states(self._destination, self._selection)
        mirrored = []
        for name, state in wanted.items():
            if name not in present:
                continue
            self.notes[name] = []
            ours = present[name]
            count, have = len(state.description.partitions), len(ours.description.partitions)
            try:
                if have < count:
                    await self._destination.create_partitions({name: count})
                await self._alter(state, ours)
            except KafkaError as error:
                # What is wrong with one topic must not keep the others from being copied.
                self._note_unless_retriable(name, error)
            if have > count:
                self._note(name, f"the destination has {have} partitions, the source {count}")
            mirrored.append(MirroredTopic(name, count, state.is_compacted))
        return mirrored

    async def _create(self, states: Sequence[TopicState]) -> None:
        """Create topics. Options follow, when it is known which ones the destination has."""
        brokers = len((await self._destination.describe_cluster()).brokers)
        created = await self._destination.create_topics(
            [
                NewTopic(
                    state.description.name,
                    num_partitions=len(state.description.partitions),
                    replication_factor=min(max(state.description.replication_factor, 1), max(brokers, 1)),
                )
                for state in states
            ],
            raise_errors=False,
        )
        for result in created:
            # Another mirror, or a client, may have been quicker.
            if result.error is not None and not isinstance(result.error, TopicAlreadyExistsError):
                self._note_unless_retriable(result.name, result.error)

    async def _alter(self, theirs: TopicState, ours: TopicState) -> None:
        changes = self.changes(theirs, ours)
        if changes:
            resource = ConfigResource(ConfigResourceType.TOPIC, theirs.description.name)
            await self._destination.alter_configs({resource: changes})

    def changes(self, theirs: TopicState, ours: TopicState) -> dict[str, str | None]:
        """Return the options to set, and those to reset as None."""
        wanted = self.wanted_options(theirs, ours)
        changes: dict[str, str | None] = {
            name: value for name, value in wanted.items() if ours.options.get(name) != value
        }
        changes |= {name: None for name in ours.options if name not in wanted and name not in _OF_ONE_CLUSTER}
        return changes

    def wanted_options(self, theirs: TopicState, ours: TopicState) -> dict[str, str]:
        """Return the options that a topic should have in the destination; notes say what cannot be copied."""
        name = theirs.description.name
        wanted = {}
        for option, value in theirs.options.items():
            if option in _OF_ONE_CLUSTER:
                continue
            if option not in ours.known:
                self._note(name, f"the destination does not know the option {option}={value}")
            elif option == _TIMESTAMP_TYPE and not self._sets_timestamps:
                self._note(name, f"{option}={value} would replace the times of records: set it after the switch")
            else:
                wanted[option] = value
        replicas = ours.description.replication_factor
        if replicas and int(wanted.get(_MIN_ISR, 1)) > replicas:
            self._note(name, f"{_MIN_ISR}={wanted[_MIN_ISR]} is more than its {replicas} replicas in the destination")
            wanted[_MIN_ISR] = str(replicas)
        return wanted

    def _note_unless_retriable(self, topic: str, error: KafkaError) -> None:
        if error.retriable:
            raise error
        self._note(topic, f"the destination refuses it: {str(error).rstrip('.')}")

    def _note(self, topic: str, text: str) -> None:
        notes = self.notes.setdefault(topic, [])
        if text not in notes:
            notes.append(text)


async def topic_states(admin: Admin, selection: Selection) -> dict[str, TopicState]:
    """Return the topics that are selected, by name."""
    listed = [topic.name for topic in await admin.list_topics() if selection.has_topic(topic.name)]
    states: dict[str, TopicState] = {}
    for first in range(0, len(listed), _DESCRIBED_AT_ONCE):
        names = listed[first : first + _DESCRIBED_AT_ONCE]
        described = await admin.describe_topics(names, raise_errors=False)
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        configs = await admin.describe_configs(resources, raise_errors=False)
        for topic, config in zip(described, configs, strict=True):
            # A topic may be deleted at any time.
            if topic.error is None and config.error is None:
                states[topic.name] = _state(topic, config)
    return states


def _state(topic: TopicDescription, config: ConfigDescription) -> TopicState:
    values = {entry.name: entry.value for entry in config.entries}
    options = {
        entry.name: entry.value
        for entry in config.entries
        if entry.source == _OF_TOPIC and entry.value is not None and not entry.is_sensitive
    }
    return TopicState(topic, options, frozenset(values), "compact" in (values.get(_CLEANUP_POLICY) or ""))
