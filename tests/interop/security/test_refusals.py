"""Who may not come in is told so, in bounded time, and the broker's log has one line that says what happened."""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from tests.interop.security.clients import SecureClient
from tests.interop.security.secure_broker import SecureBroker
from tests.kit.waiting import until

TOPIC: Final = "after-refusals"
DEADLINE_S: Final = 60.0
# Of the audit stream, which tells of each kind of refusal once in a period. A period may end while a client tries.
AUDIT_PERIOD_S: Final = 10.0
# What some clients say whatever the broker has told them.
CLOSED: Final = r"closed|disconnected|EOF|eof"


@dataclass(frozen=True, slots=True)
class Refused:
    """A mistake, what clients are told about it, and what the broker's log says."""

    listener: str
    changes: dict[str, Any]
    told: str
    event: str
    logged: str
    # Clients that know of a closed connection alone.
    uninformed: frozenset[str] = field(default=frozenset())


# kafka-python forgets an answer that comes together with the end of the connection, as that of a failed login does.
HASTY: Final = frozenset({"kafka-python"})
# Those on asyncio send no alert.
HUNG_UP: Final = "the client closed the connection during the handshake"
VERIFY_FAILED: Final = r"(?i)certificate.verify.failed"
MISTAKES: Final = {
    "wrong password, PLAIN": Refused(
        "SASL_SSL",
        {"mechanism": "PLAIN", "password": "wrong"},
        "Invalid username or password",
        "authentication_failed",
        "mechanism=PLAIN .*Invalid username or password",
        HASTY,
    ),
    "wrong password, SCRAM": Refused(
        "SASL_PLAINTEXT",
        {"mechanism": "SCRAM-SHA-256", "password": "wrong"},
        "invalid credentials",
        "authentication_failed",
        "mechanism=SCRAM-SHA-256 .*invalid credentials",
        HASTY,
    ),
    "unknown user": Refused(
        "SASL_SSL",
        {"mechanism": "SCRAM-SHA-512", "user": "nobody"},
        "invalid credentials",
        "authentication_failed",
        "mechanism=SCRAM-SHA-512 .*invalid credentials",
        HASTY,
    ),
    "token that nobody signed": Refused(
        "SASL_SSL",
        {"mechanism": "OAUTHBEARER", "token": "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9."},
        "(?i)invalid.token",
        "token_refused",
        "reason=",
        # aiokafka takes the broker's objection for the end of a login that went well.
        HASTY | {"aiokafka"},
    ),
    "wrong CA": Refused(
        "SSL", {}, VERIFY_FAILED, "tls_handshake_failed", f"the client does not trust our certificate|{HUNG_UP}"
    ),
    "expired certificate": Refused(
        "EXPIRED", {}, VERIFY_FAILED, "tls_handshake_failed", f"our certificate has expired|{HUNG_UP}"
    ),
    "wrong host name": Refused(
        "ELSEWHERE", {}, VERIFY_FAILED, "tls_handshake_failed", f"does it name the host that it connects to|{HUNG_UP}"
    ),
    "plaintext to TLS": Refused(
        "SSL",
        {"protocol": "PLAINTEXT"},
        "security.protocol",
        "tls_handshake_failed",
        "the client does not speak TLS",
        frozenset({"confluent-kafka", "aiokafka", "kafka-python"}),
    ),
    "TLS to plaintext": Refused(
        "PLAINTEXT",
        {"protocol": "SSL"},
        "(?i)TLS|SSL",
        "frame_refused",
        "the peer speaks TLS, and this side is plaintext",
        # It says that it cannot connect, and no more.
        frozenset({"aiokafka"}),
    ),
    "no client certificate": Refused(
        "MUTUAL",
        {"certificate": None},
        "(?i)certificate.required",
        "tls_handshake_failed",
        "the client sends no certificate",
        frozenset({"aiokafka"}),
    ),
    "no login": Refused(
        "SASL_PLAINTEXT",
        {"protocol": "PLAINTEXT", "mechanism": None},
        "security.protocol",
        "request_refused",
        "came before the client was authenticated",
        frozenset({"confluent-kafka", "aiokafka", "kafka-python", "ottla"}),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_client_and_the_log_say_why(client: SecureClient, mistake: str, secure_broker: SecureBroker) -> None:
    """And the next client, who makes no mistake, gets in."""
    refused = MISTAKES[mistake]
    changes = {**refused.changes, **({"ca": secure_broker.untrusted_ca} if mistake == "wrong CA" else {})}
    began = len(secure_broker.output())
    started = time.monotonic()

    told = client.refusal(secure_broker.access(refused.listener, **changes))

    assert time.monotonic() - started < DEADLINE_S
    words = CLOSED + "|Unable connect" if client.name in refused.uninformed else refused.told
    assert re.search(words, told), told
    await_line(secure_broker, refused)
    periods = 2 + (time.monotonic() - started) // AUDIT_PERIOD_S
    assert len(set(lines(secure_broker.output()[began:], refused))) <= max_lines(refused) * periods, "its log fills up"
    if refused.listener in ("EXPIRED", "ELSEWHERE"):
        return
    client.exchange(secure_broker.access(refused.listener), TOPIC, uuid.uuid4().hex.encode())


def test_an_expired_client_certificate_is_refused(secure_broker: SecureBroker, client: SecureClient) -> None:
    """TLS tells the client so; aiokafka alone keeps it to itself."""
    told = client.refusal(secure_broker.access("MUTUAL", certificate=secure_broker.expired_certificate))
    assert re.search(CLOSED if client.name == "aiokafka" else "(?i)certificate.expired", told), told
    hint = "not signed by one of ssl.truststore, or has expired"
    await_line(secure_broker, Refused("MUTUAL", {}, "", "tls_handshake_failed", hint))


def lines(output: str, refused: Refused) -> list[str]:
    """Find what a log says about a mistake at a listener."""
    about = [line for line in output.splitlines() if refused.event in line and re.search(refused.logged, line)]
    return [line for line in about if f"listener={refused.listener} " in f"{line} "]


def max_lines(refused: Refused) -> int:
    """How many lines a client that tries again and again may cause in one period of the audit stream."""
    # A handshake has some ways to end, and each has its line. Each bad frame in the clear is told: it comes from a
    # fault, and not from knocking at a door.
    return {"frame_refused": 1000, "tls_handshake_failed": 3}.get(refused.event, 1)


def await_line(broker: SecureBroker, refused: Refused) -> None:
    """Wait until the log says it; a line is not repeated, so that it may stand there from an earlier test."""
    until(lambda: lines(broker.output(), refused), lambda: f"a line like {refused} in {broker.output()[-3000:]}")
