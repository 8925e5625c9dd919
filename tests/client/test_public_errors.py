"""`ottla.errors`, the errors as users import them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import ottla
import ottla.errors
from ottla.client import errors as client_errors
from ottla.client.errors import KafkaError, LocalError, error_classes
from ottla.client.errors.kafka_error import CLASS_BY_CODE


def test_every_error_of_the_client_is_public() -> None:
    """Those of the client itself, and one for each code; the names of today stay where they are."""
    public = {name: getattr(ottla.errors, name) for name in ottla.errors.__all__}

    assert all(issubclass(error, KafkaError) for error in public.values())
    # `error_for` makes further classes for codes that no client should meet.
    declared_by_code = {error for error in CLASS_BY_CODE.values() if error.__module__ == error_classes.__name__}
    assert declared_by_code <= set(public.values())
    declared = [error for error in vars(client_errors).values() if isinstance(error, type)]
    assert {error for error in declared if issubclass(error, KafkaError)} == set(public.values())
    assert ottla.KafkaError is ottla.errors.KafkaError is KafkaError
    assert all(getattr(client_errors, name) is error for name, error in public.items())


def test_the_documented_hierarchy_is_the_real_one() -> None:
    """Each class of the picture stands below its base class."""
    assert ottla.errors.__doc__ is not None
    picture = re.findall(r"^( {4}[│├└─ ]*)(\w+)", ottla.errors.__doc__.split("What to do")[0], re.MULTILINE)
    path: list[tuple[int, str]] = []
    seen = set()
    for indent, name in picture:
        if not hasattr(ottla.errors, name):
            continue
        while path and path[-1][0] >= len(indent):
            path.pop()
        if path:
            assert issubclass(getattr(ottla.errors, name), getattr(ottla.errors, path[-1][1])), name
        path.append((len(indent), name))
        seen.add(name)

    local = {name for name in ottla.errors.__all__ if issubclass(getattr(ottla.errors, name), LocalError)}
    assert local <= seen


@pytest.mark.parametrize(
    ("name", "retriable"),
    [("NotLeaderForPartitionError", True), ("TopicAuthorizationFailedError", False), ("KafkaTimeoutError", True)],
)
def test_errors_say_what_a_retry_and_a_transaction_make_of_them(name: str, retriable: bool) -> None:
    """`abortable` and `fatal` are set by the producer, on the error that it raises."""
    error = getattr(ottla.errors, name)("detail")

    assert (error.retriable, error.abortable, error.fatal) == (retriable, False, False)


def test_errors_come_without_the_clients() -> None:
    """A module that only handles errors stays quick to import."""
    code = "import sys, ottla.errors; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)

    assert {"asyncio", "ssl", "cramjam", "ottla.client.producer"}.isdisjoint(loaded.stdout.split())
