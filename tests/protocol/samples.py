"""Random messages, derived from their declarations.

A seeded `random.Random` and not a Hypothesis strategy per field: messages have hundreds of fields, and this draws
one in microseconds. Properties take the seed from Hypothesis, so that a failure names it.
"""

from __future__ import annotations

import struct
from random import Random
from typing import Any

from ottla.protocol.message import Message, WireField
from ottla.protocol.primitives import Array, WireType

INTEGER_BITS = {"int8": (8, True), "int16": (16, True), "int32": (32, True), "int64": (64, True)}
INTEGER_BITS |= {"uint16": (16, False), "uint32": (32, False)}
TEXTS = ["", "a", "orders", "größe", "日本", "\x00", "x" * 126, "y" * 127, "z" * 300]


class TameRandom(Random):
    """Draws integers that mean something as an error code, a duration and a date alike."""


def sample(cls: type[Message], version: int, random: Random) -> Any:
    """Return a message that the version can carry: fields that it lacks have their defaults."""
    return cls(**{field.name: _field(field, version, random) for field in cls.wire_fields})


def _field(field: WireField, version: int, random: Random) -> Any:
    if version not in field.versions or (field.tag is not None and random.random() < 0.4):
        return field.absent
    if version in field.nullable and random.random() < 0.2:
        return None
    return value(field.type, version, random)


def value(wire_type: Any, version: int, random: Random) -> Any:
    """Return a value of a wire type; the ends of its range come often."""
    if isinstance(wire_type, Array):
        return [value(wire_type.item, version, random) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    if not isinstance(wire_type, WireType):
        return sample(wire_type, version, random)
    if wire_type.name in INTEGER_BITS:
        bits, signed = INTEGER_BITS[wire_type.name]
        low = -(1 << bits - 1) if signed else 0
        high = low + (1 << bits) - 1
        if isinstance(random, TameRandom):
            return random.randint(1, 100)
        return random.choice((low, high, 0, 1, random.randint(low, high)))
    match wire_type.name:
        case "boolean":
            return random.random() < 0.5
        case "float64":
            return struct.unpack(">d", struct.pack(">d", random.uniform(-1e9, 1e9)))[0]
        case "uuid":
            return random.randbytes(16)
        case "string":
            return random.choice(TEXTS)
        case _:
            return random.randbytes(random.choice((0, 1, 60, 127, 200)))
