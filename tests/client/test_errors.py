"""Errors of the client: names, numbers, and what they say."""

from __future__ import annotations

import pickle

import pytest

from ottla.client import errors
from ottla.client.errors import KafkaError, KafkaTimeoutError, NoBrokersAvailable, error_for, raise_for
from ottla.client.errors.kafka_error import CLASS_BY_CODE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.errors import KafkaError as ProtocolKafkaError

CODES = [code for code in ErrorCode if code is not ErrorCode.NONE]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_each_code_has_a_class_of_its_own(code: ErrorCode) -> None:
    """With the facts of the table, and the detail of the case."""
    error = error_for(code, "the case at hand")

    assert (error.errno, error.message, error.description) == (code.value, code.name, code.description)
    assert (error.retriable, error.invalid_metadata) == (code.retriable, code.refresh_metadata)
    assert type(error) is type(error_for(code))
    assert type(error) is not KafkaError
    assert isinstance(error, ProtocolKafkaError)
    assert "the case at hand" in str(error)
    assert code.description in str(error)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (3, "UnknownTopicOrPartitionError"),
        (6, "NotLeaderForPartitionError"),
        (10, "MessageSizeTooLargeError"),
        (17, "InvalidTopicError"),
        (19, "NotEnoughReplicasError"),
        (56, "KafkaStorageError"),
        (90, "ProducerFencedError"),
        (-1, "UnknownError"),
    ],
)
def test_classes_have_the_names_that_other_clients_gave_them(code: int, name: str) -> None:
    """So that handlers written for those go on working."""
    assert type(error_for(code)) is getattr(errors, name)


def test_codes_of_the_future_are_kafka_errors_that_tell_their_number() -> None:
    """They are not retried."""
    error = error_for(3210, "something")

    assert "3210" in str(error)
    assert not error.retriable


def test_no_error_raises_nothing() -> None:
    """All others do."""
    raise_for(0)
    with pytest.raises(errors.TopicAlreadyExistsError, match="the topic t"):
        raise_for(36, "the topic t")


@pytest.mark.parametrize("made", [error_for(3, "t"), NoBrokersAvailable("x"), KafkaError("y")], ids=repr)
def test_errors_survive_pickling(made: KafkaError) -> None:
    """As those do that cross processes."""
    copied = pickle.loads(pickle.dumps(made))

    assert (type(copied), str(copied)) == (type(made), str(made))


@pytest.mark.parametrize("made", [error_for(45, "t-0"), KafkaTimeoutError("t-0 took too long")], ids=repr)
def test_errors_of_transactions_say_what_to_do(made: KafkaError) -> None:
    """Abort it, or replace the producer; copies that cross processes say so, too."""
    before = str(made)
    assert (made.abortable, made.fatal) == (False, False)
    made.abortable = True
    assert str(made) == f"{before} Abort the transaction; the producer can then begin another."
    made.fatal = True
    assert str(made) == f"{before} This producer cannot go on: close it and create a new one."
    copied = pickle.loads(pickle.dumps(made))
    assert (copied.abortable, copied.fatal, str(copied)) == (True, True, str(made))


def test_every_class_is_a_public_name() -> None:
    """Of the module that users import."""
    for error_class in list(CLASS_BY_CODE.values()):
        if error_class.__module__.endswith("error_classes"):
            assert getattr(errors, error_class.__name__) is error_class
