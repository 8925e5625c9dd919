"""Whether two clusters have the same topics, records, options, groups and ACLs: the check before a switch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.client.admin.admin import Admin
from ottla.client.errors import KafkaError
from ottla.client.mirror.acls import Acls
from ottla.client.mirror.copier import Copier
from ottla.client.mirror.groups import Groups
from ottla.client.mirror.positions import Positions, bounds
from ottla.client.mirror.reading import Reader
from ottla.client.mirror.selection import Selection
from ottla.client.mirror.topics import Topics, topic_states


@dataclass(frozen=True, slots=True)
class Agreement:
    """How much was compared, and what differs."""

    topics: int
    partitions: int
    records: int
    groups: int
    acls: int
    # Each is a sentence; empty if the clusters agree.
    differences: Sequence[str] = ()
    # What is different on purpose.
    notes: Sequence[str] = field(default=())

    @property
    def sentence(self) -> str:
        """The result in one line."""
        counted = ", ".join(
            _counted(count, noun)
            for count, noun in ((self.topics, "topic"), (self.partitions, "partition"), (self.groups, "group"))
        )
        if not self.differences:
            return f"source and destination agree: {counted}"
        return f"source and destination differ in {_counted(len(self.differences), 'place')}: {counted} compared"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return {
            "agree": not self.differences,
            "topics": self.topics,
            "partitions": self.partitions,
            "records": self.records,
            "groups": self.groups,
            "acls": self.acls,
            "differences": list(self.differences),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class Compared:
    """What is compared."""

    source: Admin
    destination: Admin
    source_reader: Reader
    selection: Selection
    copier: Copier
    positions: Positions
    topics: Topics
    groups: Groups
    acls: Acls | None


async def agreement(compared: Compared) -> Agreement:
    """Compare both clusters as they are now; KafkaError if one cannot be asked."""
    copies = compared.copier.copies
    differences = await _topic_differences(compared)
    partitions = sorted(copies)
    theirs = await bounds(compared.source_reader.cluster, partitions, compared.source_reader.isolation)
    ours = await bounds(compared.destination.cluster, partitions)
    uncommitted = (
        await bounds(compared.source_reader.cluster, partitions) if compared.source_reader.isolation else theirs
    )
    records = 0
    for partition in partitions:
        copy, here, there, all_there = copies[partition], ours[partition], theirs[partition], uncommitted[partition]
        if copy.problem is not None:
            differences.append(f"{partition}: {copy.problem}")
        elif isinstance(here, KafkaError):
            differences.append(f"{partition}: the destination does not answer: {here}")
        elif isinstance(there, KafkaError):
            differences.append(f"{partition}: the source does not answer: {there}")
        elif here[1] != there[1]:
            differences.append(
                f"{partition} ends at {there[1]} in the source, and at {here[1]} in the destination: stop its producers"
            )
        elif not isinstance(all_there, KafkaError) and all_there[1] != there[1]:
            differences.append(f"{partition} has an open transaction in the source from offset {there[1]} on")
        else:
            records += here[1] - here[0]
    groups, group_differences = await compared.groups.differences(copies)
    differences += group_differences
    acls = compared.acls
    wanted = await acls.wanted() if acls is not None else ()
    if acls is not None:
        differences += [f"the destination lacks the ACL {_text(each.to_dict())}" for each in await acls.missing()]
    return Agreement(
        topics=len({partition.topic for partition in partitions}),
        partitions=len(partitions),
        records=records,
        groups=groups,
        acls=len(wanted),
        differences=differences,
        notes=notes_on(compared),
    )


async def _topic_differences(compared: Compared) -> list[str]:
    theirs = await topic_states(compared.source, compared.selection)
    ours = await topic_states(compared.destination, compared.selection)
    found = []
    for name, state in theirs.items():
        here = ours.get(name)
        if here is None:
            found.append(f"the destination has no topic {name}")
            continue
        if len(here.description.partitions) < len(state.description.partitions):
            found.append(f"topic {name} has more partitions in the source")
        changes = compared.topics.changes(state, here)
        found += [f"option {option} of topic {name} is not the same" for option in changes]
    return found


def notes_on(compared: Compared) -> list[str]:
    """Return what is different on purpose, or because the destination refuses it."""
    notes = [f"topic {topic}: {note}" for topic, of_topic in compared.topics.notes.items() for note in of_topic]
    notes += [
        f"group {name} works in the destination already: its offsets are its own"
        for name in sorted(compared.groups.moved)
    ]
    if compared.acls is not None and compared.acls.note is not None:
        notes.append(compared.acls.note)
    return notes


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _text(fields: dict[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in fields.items())
