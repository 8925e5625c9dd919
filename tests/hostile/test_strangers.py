"""What a client may send before it is authenticated: the largest frame costs a fraction of a second."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.security.sasl.oauth_bearer import InvalidTokenError, oauth_bearer
from ottla.broker.security.sasl.plain import plain
from ottla.broker.security.sasl.sasl_exchange import AuthenticationFailedError, SaslExchange
from ottla.broker.security.sasl.scram import scram

FRAME_BYTES_MAX = 64 * 1024
# Of a processor. Nothing here does more than read a text once.
SECONDS_MAX = 0.2


def refuse(_token: str) -> Any:
    """Verify no token."""
    raise InvalidTokenError("unknown")


MECHANISMS: dict[str, Callable[[], SaslExchange]] = {
    "OAUTHBEARER": lambda: oauth_bearer(refuse),
    "PLAIN": lambda: plain({"alice": "secret"}),
    "SCRAM": lambda: scram("SCRAM-SHA-256", lambda _user: None, b"secret"),
}
# What repetitions of repetitions, and texts that nearly match, look like.
PIECES = [
    b"a",
    b"=",
    b",",
    b"\x01",
    b"a=\x01",
    b"auth=\x01",
    b"auth=Bearer a\x01",
    b"=2C",
    b",p=",
    b",a=",
    b"n,,",
    b"1",
]
STARTS = [b"", b"n,,", b"n,,\x01", b"n,a=", b"n,,n=", b"n,,n=u,r=", b"c=biws,r=x,", b"n,,\x01auth=Bearer "]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_message_of_a_stranger_takes_long(mechanism: str) -> None:
    """Each mechanism reads its messages in time that is in proportion to their length."""
    for start in STARTS:
        for piece in PIECES:
            for end in (b"", b"!", b"\x01", b"\x01\x01"):
                message = (start + piece * (FRAME_BYTES_MAX // len(piece)))[: FRAME_BYTES_MAX - len(end)] + end
                exchange = MECHANISMS[mechanism]()
                next(exchange)
                begun = time.thread_time()
                with contextlib.suppress(AuthenticationFailedError, StopIteration):
                    exchange.send(message)
                seconds = time.thread_time() - begun
                assert seconds < SECONDS_MAX, f"{start!r}, {piece!r} again and again, {end!r}: {seconds:.2f} s"


@pytest.mark.parametrize(
    "last",
    [b"c=biws,r=" + b"x" * 60_000, b"c=biws,r=x" + b",p=a" * 15_000, b"c=biws,r=x" + b",a" * 30_000 + b",p=!"],
    ids=["nonce", "proofs", "extensions"],
)
def test_the_last_message_of_scram_takes_no_longer(last: bytes) -> None:
    """It is read with what the broker has answered to the first one."""
    exchange = MECHANISMS["SCRAM"]()
    next(exchange)
    exchange.send(b"n,,n=alice,r=x")
    begun = time.thread_time()
    with pytest.raises(AuthenticationFailedError):
        exchange.send(last)
    assert time.thread_time() - begun < SECONDS_MAX
