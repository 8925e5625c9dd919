"""Values of options are read, checked and written as Kafka does."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.config.kinds import (
    HIDDEN,
    Boolean,
    Double,
    Int,
    List,
    Long,
    OptionKind,
    Password,
    Secret,
    Short,
    String,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (0.5, "0.5"),
        (0.001, "0.001"),
        (0.0009, "9.0E-4"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (12345678.9, "1.23456789E7"),
        (1e-5, "1.0E-5"),
        (1e21, "1.0E21"),
        (123456789012345680.0, "1.2345678901234568E17"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-2.5e-7, "-2.5E-7"),
        (1 / 3, "0.3333333333333333"),
    ],
)
def test_a_double_is_written_as_java_writes_it(value: float, text: str) -> None:
    """The switch to exponents is at 10^-3 and 10^7, and one digit always follows the point."""
    assert Double().format(value) == text


@examples(200)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_survives_being_written_and_read(value: float) -> None:
    """Not one bit changes."""
    assert struct.pack(">d", Double().parse(Double().format(value))) == struct.pack(">d", value)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Boolean(), "TRUE", True),
        (Boolean(), "False", False),
        (Int(), "+7", 7),
        (Int(), "-0", 0),
        (Int(), "-2147483648", -(2**31)),
        (Int(at_least=1, at_most=9, or_exactly=-1), "-1", -1),
        (Long(), "9223372036854775807", 2**63 - 1),
        (Short(), "-32768", -(2**15)),
        (Double(), "1e3", 1000.0),
        (Double(), ".5", 0.5),
        (String(), "", ""),
        (List(), "", ()),
        (List(), "a , b,c", ("a", "b", "c")),
    ],
)
def test_a_valid_text_is_read(kind: OptionKind[object], text: str, value: object) -> None:
    """Java's forms of numbers, booleans and lists are accepted."""
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Boolean(), "yes"),
        (Boolean(), ""),
        (Int(), ""),
        (Int(), "1_000"),
        (Int(), "٣"),
        (Int(), "1.0"),
        (Int(), "9" * 5000),
        (Int(), "2147483648"),
        (Int(), "-2147483649"),
        (Int(at_least=14), "13"),
        (Int(at_least=1, at_most=9, or_exactly=-1), "0"),
        (Short(), "32768"),
        (Long(), "9223372036854775808"),
        (Double(), "NaN"),
        (Double(), "Infinity"),
        (Double(), "1e999"),
        (Double(), "1_0.5"),
        (Double(at_least=0, at_most=1), "1.01"),
        (String(one_of=("none", "required")), "None"),
        (List(), "a,,b"),
        (List(), ","),
        (List(one_of=("compact", "delete")), "compact,remove"),
        (List(matching=r"\*|(\d+:\d+(,\d+:\d+)*)?"), "*,1:2"),
    ],
)
def test_a_wrong_text_is_refused(kind: OptionKind[object], text: str) -> None:
    """What Java would not read, does not fit, or is out of bounds, is a ValueError."""
    with pytest.raises(ValueError):  # noqa: PT011 - the reason is optional
        kind.parse(text)


def test_a_kind_says_what_it_expects() -> None:
    """Messages and documentation take their words from the kind."""
    assert Int(at_least=14).expected == "type int, at least 14"
    assert Int(at_most=3).expected == "type int, at most 3"
    assert Int(at_least=1, at_most=9, or_exactly=-1).expected == "type int, 1 to 9, or -1"
    assert String(one_of=("a", "")).expected == "type string, a, (empty)"
    assert List(one_of=("a", "b")).expected == "type list, any of a, b"
    assert Secret().expected == "type password"


def test_a_password_shows_itself_only_on_demand() -> None:
    """Neither text nor representation holds the secret."""
    password = Secret().parse("hunter2")

    assert password == Password("hunter2")
    assert password.value == "hunter2"
    assert str(password) == f"{password}" == HIDDEN
    assert "hunter2" not in repr(password)
