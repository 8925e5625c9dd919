"""`ottla.aiokafka` beside aiokafka itself: the same names, signatures, defaults and errors."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka.errors
import pytest

import ottla.aiokafka.errors
from ottla.client import errors as ours
from ottla.client.aiokafka.assignors import RangePartitionAssignor, StickyPartitionAssignor, our_assignor
from ottla.client.aiokafka.translation import translated
from ottla.client.consumer.group.assignors import RangeAssignor
from ottla.client.consumer.group.consumer_protocol import Subscription
from ottla.client.consumer.group.sticky_assignor import StickyAssignor
from ottla.client.types import TopicPartition as OurTopicPartition

MODULES = [
    "",
    ".abc",
    ".admin",
    ".admin.config_resource",
    ".client",
    ".consumer",
    ".coordinator.assignors.abstract",
    ".coordinator.assignors.range",
    ".coordinator.assignors.roundrobin",
    ".errors",
    ".helpers",
    ".partitioner",
    ".producer",
    ".structs",
]
CLIENTS = [".producer.AIOKafkaProducer", ".consumer.AIOKafkaConsumer", ".admin.AIOKafkaAdminClient"]
OTHERS = [
    ".abc.AbstractTokenProvider",
    ".abc.ConsumerRebalanceListener",
    ".admin.NewPartitions",
    ".admin.NewTopic",
    ".admin.RecordsToDelete",
    ".admin.config_resource.ConfigResource",
    ".client.AIOKafkaClient",
    ".partitioner.DefaultPartitioner",
]
# For requests of aiokafka's own classes, which have no meaning here.
LEFT_OUT = {"AIOKafkaClient": {"coordinator_lookup", "ready", "send"}}
STRUCTS = [
    "BrokerMetadata",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionMetadata",
    "RecordMetadata",
    "TopicPartition",
]


def both(name: str) -> tuple[Any, Any]:
    """Return what aiokafka and we have under a name, such as `.errors.KafkaError`."""
    module, _, attribute = name.rpartition(".")
    return (
        getattr(importlib.import_module(f"aiokafka{module}"), attribute),
        getattr(importlib.import_module(f"ottla.aiokafka{module}"), attribute),
    )


def public_names(module: Any) -> set[str]:
    """Return the names that a module offers."""
    if hasattr(module, "__all__"):
        return set(module.__all__)
    own = {name for name, item in vars(module).items() if getattr(item, "__module__", None) == module.__name__}
    return {name for name in own if not name.startswith("_")}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_has_all_names_of_aiokafkas(name: str) -> None:
    """Under the same path."""
    theirs = public_names(importlib.import_module(f"aiokafka{name}"))
    module = importlib.import_module(f"ottla.aiokafka{name}")

    assert {each for each in theirs if not hasattr(module, each)} == set()


def methods(client: Any) -> Iterator[tuple[str, Any]]:
    """Return the public methods of a class, and those that Python calls."""
    special = {"__init__", "__aenter__", "__aexit__", "__aiter__", "__anext__", "__call__"}
    for name, item in inspect.getmembers(client, callable):
        own = any(name in vars(base) for base in client.__mro__[:-1])
        if own and (name in special or not name.startswith("_")):
            yield name, item


def shape(call: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """Return the parameters of a function: names, kinds and defaults."""
    return [(each.name, each.kind, comparable(each.default)) for each in inspect.signature(call).parameters.values()]


def comparable(default: Any) -> Any:
    """Return a default that is equal to its twin: classes and their instances by name."""
    if isinstance(default, str) and default.startswith("aiokafka-"):
        return "aiokafka-"
    if isinstance(default, tuple):
        return tuple(map(comparable, default))
    if isinstance(default, type):
        return default.__name__
    is_plain = default is None or isinstance(default, int | str | float | bool)
    return default if is_plain else type(default).__name__


@pytest.mark.parametrize("name", [*CLIENTS, *OTHERS])
def test_every_method_has_aiokafkas_signature(name: str) -> None:
    """Names, kinds and defaults of all parameters; and what is a coroutine there is one here."""
    theirs, mine = both(name)
    left_out = LEFT_OUT.get(theirs.__name__, set())
    for method, expected in methods(theirs):
        if method in left_out:
            continue
        made = getattr(mine, method)
        assert shape(made) == shape(expected), method
        assert inspect.iscoroutinefunction(made) == inspect.iscoroutinefunction(expected), method


def test_the_tls_context_takes_the_same_arguments() -> None:
    """All of them by keyword."""
    theirs, mine = both(".helpers.create_ssl_context")

    assert shape(mine) == shape(theirs)


@pytest.mark.parametrize("name", STRUCTS)
def test_structs_have_the_same_fields(name: str) -> None:
    """In the same order, and they print the same."""
    theirs, mine = both(f".structs.{name}")
    if dataclasses.is_dataclass(theirs):
        fields = [field.name for field in dataclasses.fields(theirs)]
        assert [field.name for field in dataclasses.fields(mine)] == fields
    else:
        fields = list(theirs._fields)
        assert list(mine._fields) == fields
        assert mine._field_defaults == theirs._field_defaults
    values = list(range(len(fields)))
    assert repr(mine(*values)) == repr(theirs(*values))


def error_classes(module: Any) -> dict[str, type[Exception]]:
    """Return all exceptions of a module by name."""
    return {name: item for name, item in vars(module).items() if isinstance(item, type) and issubclass(item, Exception)}


def test_errors_are_the_same_classes_by_name_number_and_base() -> None:
    """So that every handler catches what it caught before."""
    theirs, mine = error_classes(aiokafka.errors), error_classes(ottla.aiokafka.errors)
    facts = ("errno", "message", "retriable", "invalid_metadata")
    for name, error in theirs.items():
        assert [base.__name__ for base in mine[name].__mro__] == [base.__name__ for base in error.__mro__]
        assert [getattr(mine[name], fact, None) for fact in facts] == [getattr(error, fact, None) for fact in facts]
    for code in range(-2, 130):
        assert ottla.aiokafka.errors.for_code(code).__name__ == aiokafka.errors.for_code(code).__name__


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ours.NoBrokersAvailable("x"), "KafkaConnectionError"),
        (ours.KafkaTimeoutError("x"), "KafkaTimeoutError"),
        (ours.ConsumerStoppedError(), "ConsumerStoppedError"),
        (ours.ProducerClosed(), "ProducerClosed"),
        (ours.IllegalStateError("x"), "IllegalStateError"),
        (ours.CommitFailedError("x"), "CommitFailedError"),
        (ours.ProducerFencedError("x"), "ProducerFenced"),
        (ours.NotLeaderForPartitionError("x"), "NotLeaderForPartitionError"),
        (ours.TopicAlreadyExistsError("x"), "TopicAlreadyExistsError"),
        (ours.CoordinatorNotAvailableError("x"), "GroupCoordinatorNotAvailableError"),
        (ours.CorruptRecordError("x"), "CorruptRecordException"),
        (ours.error_for(116, "a code that aiokafka does not know"), "UnknownError"),
    ],
)
def test_our_errors_become_aiokafkas(error: ours.KafkaError, name: str) -> None:
    """Ours is the cause, with its advice; the text says what went wrong."""
    made = translated(error)

    assert type(made).__name__ == name
    assert type(made).__module__ == "ottla.client.aiokafka.errors"
    assert made.__cause__ is error
    assert type(pickle.loads(pickle.dumps(made))) is type(made)


def test_other_errors_stay_as_they_are() -> None:
    """What a serializer raises is the program's own."""
    error = ValueError("x")

    assert translated(error) is error


def test_partitions_are_equal_to_ours_and_print_as_aiokafkas() -> None:
    """Either finds the other in a dict."""
    made = ottla.aiokafka.TopicPartition("t", 1)

    assert {OurTopicPartition("t", 1): "found"}[made] == "found"  # type: ignore[index]
    assert str(made) == "TopicPartition(topic='t', partition=1)"


@pytest.mark.parametrize("name", ["Range", "RoundRobin"])
def test_assignors_assign_as_aiokafkas_do(name: str) -> None:
    """For a program that calls them itself."""
    theirs, mine = both(f".coordinator.assignors.{name.lower()}.{name}PartitionAssignor")

    class Cluster:
        def partitions_for_topic(self, topic: str) -> set[int]:
            return {0, 1, 2} if topic == "a" else {0, 1}

    topics = {"m1": ["a", "b"], "m2": ["a"], "m3": ["a", "b"]}
    expected = theirs.assign(Cluster(), {member: theirs.metadata(some) for member, some in topics.items()})
    made = mine.assign(Cluster(), {member: mine.metadata(some) for member, some in topics.items()})

    assert mine.name == theirs.name
    assert {member: sorted(each.partitions()) for member, each in made.items()} == {
        member: sorted(each.partitions()) for member, each in expected.items()
    }


def test_ready_made_assignors_are_ours() -> None:
    """With what they tell the leader; one that a program derives from them is called as aiokafka calls it."""

    class Derived(RangePartitionAssignor):
        name = "derived"

        @classmethod
        def assign(cls, cluster: Any, members: Any) -> dict[str, Any]:
            return super().assign(cluster, members)

    assert our_assignor(StickyPartitionAssignor) is StickyAssignor
    assert our_assignor(RangePartitionAssignor) is RangeAssignor
    adapted = our_assignor(Derived)()
    assert adapted.name == "derived"
    assert adapted.assign({"t": 2}, {"m": Subscription(["t"])}) == {
        "m": [OurTopicPartition("t", 0), OurTopicPartition("t", 1)]
    }
