"""Every client gets in at every door, by every mechanism that it has."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Final

import pytest
from tests.interop.security.clients import SecureClient, ShimClient
from tests.interop.security.secure_broker import MECHANISMS, SecureBroker

TOPIC: Final = "exchanged"
WAYS: Final = [
    *((listener, None) for listener in ("PLAINTEXT", "SSL", "MUTUAL")),
    *((listener, mechanism) for listener in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS),
]


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_a_record_goes_in_and_comes_out(
    client: SecureClient, listener: str, mechanism: str | None, secure_broker: SecureBroker
) -> None:
    """Over all four protocols."""
    if mechanism is not None and mechanism not in client.mechanisms:
        pytest.skip(f"{client.name} signs no tokens")
    value = uuid.uuid4().hex.encode()

    client.exchange(secure_broker.access(listener, mechanism=mechanism), TOPIC, value)


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_options_of_aiokafka_open_every_door(listener: str, mechanism: str | None, secure_broker: SecureBroker) -> None:
    """With our client behind them: its TLS context, its passwords and its token provider."""
    ShimClient().exchange(secure_broker.access(listener, mechanism=mechanism), TOPIC, uuid.uuid4().hex.encode())


def test_a_wrong_password_is_a_connection_error_as_with_aiokafka(secure_broker: SecureBroker) -> None:
    """The text says why."""
    access = replace(secure_broker.access("SASL_PLAINTEXT", mechanism="SCRAM-SHA-256"), password="wrong")
    said = ShimClient().refusal(access)

    assert said.startswith("KafkaConnectionError")
    assert "Unable to bootstrap from" in said
