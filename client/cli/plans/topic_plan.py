"""The steps that make topics match a file. They never delete anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import ConfigResource, NewTopic, Result, TopicDescription
from ottla.client.cli.plans.topic_files import WantedTopic
from ottla.client.errors import InvalidPartitionsError, InvalidReplicationFactorError, KafkaError
from ottla.client.errors import UnknownTopicOrPartitionError as UnknownTopicError
from ottla.protocol.config_resources import ConfigResourceType


class Action(StrEnum):
    """The kind of step for a topic."""

    CREATE = "create"
    CHANGE = "change"
    NOTHING = "nothing"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class TopicStep(Result):
    """The step for one topic; `changes` is for the user, the rest is for the broker."""

    topic: str
    action: Action
    changes: tuple[str, ...] = ()
    error: KafkaError | None = None
    partitions: int | None = field(default=None, compare=False)
    configs: Mapping[str, str | None] = field(default_factory=dict, compare=False)


async def plan(admin: Admin, wanted: Sequence[WantedTopic]) -> list[TopicStep]:
    """Compare the wanted topics with the existing ones."""
    described = await admin.describe_topics([each.name for each in wanted], raise_errors=False) if wanted else ()
    found = {each.name: each for each in described}
    there = [each.name for each in described if each.error is None]
    configs = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name) for name in there])
    values = {each.resource_name: {entry.name: entry for entry in each.entries} for each in configs}
    steps = []
    for each in wanted:
        topic = found[each.name]
        if isinstance(topic.error, UnknownTopicError):
            steps.append(_creation(each))
        elif topic.error is not None:
            steps.append(TopicStep(each.name, Action.REFUSE, error=topic.error))
        else:
            entries = values.get(each.name, {})
            # An option that is already at its default needs no reset.
            own = {name: entry.value for name, entry in entries.items() if entry.source == "topic"}
            steps.append(step(each, topic, {name: entry.value for name, entry in entries.items()}, own))
    return steps


def _creation(wanted: WantedTopic) -> TopicStep:
    numbers = {"partitions": wanted.partitions, "replication factor": wanted.replication_factor}
    changes = [f"{what} {number}" for what, number in numbers.items() if number is not None]
    changes += [f"{name} {value}" for name, value in wanted.configs.items() if value is not None]
    return TopicStep(wanted.name, Action.CREATE, tuple(changes))


def step(
    wanted: WantedTopic, topic: TopicDescription, values: Mapping[str, str | None], own: Mapping[str, str | None]
) -> TopicStep:
    """Return the step for an existing topic with these option values; `own` are those set on the topic."""
    count = len(topic.partitions)
    if wanted.partitions is not None and wanted.partitions < count:
        detail = f"{topic.name} has {count} partitions and cannot have fewer; the file has {wanted.partitions}"
        return TopicStep(topic.name, Action.REFUSE, error=InvalidPartitionsError(detail))
    if wanted.replication_factor not in (None, topic.replication_factor):
        detail = (
            f"{topic.name} has replication factor {topic.replication_factor}, the file has "
            f"{wanted.replication_factor}; `ottla partition reassign` changes it"
        )
        return TopicStep(topic.name, Action.REFUSE, error=InvalidReplicationFactorError(detail))
    grows_to = wanted.partitions if wanted.partitions is not None and wanted.partitions > count else None
    configs = {
        name: value
        for name, value in wanted.configs.items()
        if (name in own if value is None else values.get(name) != value)
    }
    changes = [f"partitions {count} -> {grows_to}"] if grows_to else []
    changes += [
        f"{name} {values.get(name) or '-'} -> {'default' if value is None else value}"
        for name, value in configs.items()
    ]
    action = Action.CHANGE if changes else Action.NOTHING
    return TopicStep(topic.name, action, tuple(changes), partitions=grows_to, configs=configs)


async def carry_out(
    admin: Admin, steps: Sequence[TopicStep], wanted: Sequence[WantedTopic], *, validate_only: bool
) -> list[TopicStep]:
    """Run the steps, or let the broker validate them; return the steps with their errors."""
    errors: dict[str, KafkaError | None] = {}
    creating = {each.topic for each in steps if each.action is Action.CREATE}
    new = [
        NewTopic(
            each.name,
            each.partitions or -1,
            each.replication_factor or -1,
            configs={name: value for name, value in each.configs.items() if value is not None},
        )
        for each in wanted
        if each.name in creating
    ]
    if new:
        for created in await admin.create_topics(new, validate_only=validate_only, raise_errors=False):
            errors[created.name] = created.error
    if growing := {each.topic: each.partitions for each in steps if each.partitions is not None}:
        for grown in await admin.create_partitions(growing, validate_only=validate_only, raise_errors=False):
            errors[grown.name] = grown.error
    changing = {ConfigResource(ConfigResourceType.TOPIC, each.topic): each.configs for each in steps if each.configs}
    if changing:
        for changed in await admin.alter_configs(changing, validate_only=validate_only, raise_errors=False):
            errors[changed.resource_name] = errors.get(changed.resource_name) or changed.error
    return [replace(each, error=errors.get(each.topic)) for each in steps]
