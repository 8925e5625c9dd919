"""Credentials of users who do not exist: they look like those of users who do."""

from __future__ import annotations

import pytest

from ottla.broker.security.sasl.invented_credentials import CredentialStyle, invented_credential
from ottla.protocol.scram import ScramCredential

SECRET = b"of the cluster"
KAFKA_SALT = b"1hlzjqm8z8d1d4ayjx7cm4j3sy"


def credential(salt: bytes, iterations: int = 4096) -> ScramCredential:
    """A stored one."""
    return ScramCredential(salt, b"stored", b"server", iterations)


@pytest.mark.parametrize("salt", [bytes(range(24)), bytes(range(64)), bytes(100), KAFKA_SALT, KAFKA_SALT[:25]])
def test_invented_salts_look_like_stored_ones(salt: bytes) -> None:
    """Of the same length, or letters and digits where Kafka's tools made them; with the same iterations."""
    style = CredentialStyle.usual([credential(salt, 5000), credential(salt, 5000), credential(b"another", 9000)])
    made = [invented_credential(SECRET, "SCRAM-SHA-256", f"user-{number}", style) for number in range(200)]
    assert {CredentialStyle.of(each) for each in made} == {CredentialStyle.of(credential(salt, 5000))}
    assert len({each.salt for each in made}) == 200


def test_the_same_name_has_the_same_salt_everywhere() -> None:
    """Each time and on every broker; but not for another mechanism, or with another secret."""
    style = CredentialStyle()
    first = invented_credential(SECRET, "SCRAM-SHA-256", "mallory", style)
    assert invented_credential(SECRET, "SCRAM-SHA-256", "mallory", style) == first
    assert invented_credential(SECRET, "SCRAM-SHA-512", "mallory", style).salt != first.salt
    assert invented_credential(b"another", "SCRAM-SHA-256", "mallory", style).salt != first.salt
    assert first.salt not in first.stored_key


def test_without_any_user_they_look_like_ours() -> None:
    """Which `ottla user` would create."""
    assert CredentialStyle.usual([]) == (24, 8192)
