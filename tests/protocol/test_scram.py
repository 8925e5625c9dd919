"""SCRAM credentials and names in paths, against what RFC 7677 and Apache Kafka have."""

from __future__ import annotations

from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.protocol.entity_names import desanitized, sanitized
from ottla.protocol.scram import ScramCredential, ScramMechanism, salted_password

# The example of RFC 7677: user "user" with password "pencil".
RFC_SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_ITERATIONS = 4096


def test_keys_are_those_of_the_rfc() -> None:
    """The server's signature in RFC 7677 follows from this server key."""
    mechanism = ScramMechanism.SCRAM_SHA_256
    salted = salted_password(mechanism, "pencil", RFC_SALT, RFC_ITERATIONS)

    credential = ScramCredential.derived(mechanism, salted, RFC_SALT, RFC_ITERATIONS)

    assert credential.format() == (
        "salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
        "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
    )


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_the_text_of_a_credential_is_read_back(mechanism: ScramMechanism) -> None:
    """With either mechanism, found by its name."""
    credential = ScramCredential.derived(mechanism, b"salted", b"salt", 8192)

    assert ScramCredential.parse(credential.format()) == credential
    assert ScramMechanism.of(mechanism.label) is mechanism


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=YQ==",
        "salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=many",
        "salt=a secret,stored_key=YQ==,server_key=YQ==,iterations=4096",
        "salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=4096,more=1",
    ],
)
def test_other_text_is_refused_without_repeating_it(text: str) -> None:
    """It may hold a secret all the same."""
    with pytest.raises(ValueError, match="a SCRAM credential") as caught:
        ScramCredential.parse(text)

    assert "secret" not in str(caught.value)


def test_a_credential_does_not_show_its_keys() -> None:
    """Wherever it is printed."""
    assert repr(ScramCredential(b"salt", b"stored", b"server", 4096)) == "ScramCredential(iterations=4096)"


def test_a_mechanism_that_does_not_exist_is_refused() -> None:
    """By a ValueError."""
    with pytest.raises(ValueError, match="SCRAM-SHA-1 is not a SCRAM mechanism"):
        ScramMechanism.of("SCRAM-SHA-1")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("alice", "alice"),
        ("a b+c*d~e", "a%20b%2Bc%2Ad%7Ee"),
        ("CN=alice, O=Ottla/Praha", "CN%3Dalice%2C%20O%3DOttla%2FPraha"),
        ("<default>", "%3Cdefault%3E"),
        ("žofie", "%C5%BEofie"),
        ("::1", "%3A%3A1"),
    ],
)
def test_names_are_encoded_as_kafka_does(name: str, part: str) -> None:
    """So that both look at the same node."""
    assert sanitized(name) == part
    assert desanitized(part) == name


@examples(100)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_name_comes_back_from_one_part_of_a_path(name: str) -> None:
    """Whatever is in it."""
    part = sanitized(name)

    assert "/" not in part
    assert desanitized(part) == name
