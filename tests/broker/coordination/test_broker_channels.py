"""What waits for other brokers: sent together, in order, and never forgotten."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from ottla.broker.coordination import broker_channels
from ottla.broker.coordination.broker_channels import BrokerChannels
from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError

TIMEOUT_S = 30.0


class Link:
    """A connection that only knows whether it is closed."""

    def __init__(self) -> None:
        self.is_closed = threading.Event()

    def request(self, api: Api, build: Callable[[int], Any]) -> Any:
        """Nobody asks it."""
        raise AssertionError

    def close(self) -> None:
        """Close it."""
        self.is_closed.set()


class Sent:
    """Channels whose requests are only noted."""

    def __init__(self) -> None:
        self.link = Link()
        self.requests: list[list[str]] = []
        self.failed: list[tuple[int, list[str], str]] = []
        self.before: Callable[[], None] = lambda: None
        self.channels: BrokerChannels[str] = BrokerChannels(
            "test-to", lambda _broker: self.link, self._send, self._fail
        )

    def _send(self, link: Any, items: Sequence[str]) -> None:
        assert link is self.link
        self.requests.append(list(items))
        self.before()

    def _fail(self, broker: int, items: Sequence[str], error: Exception) -> None:
        self.failed.append((broker, list(items), str(error)))


@pytest.fixture
def sent() -> Iterator[Sent]:
    """Channels that have not started."""
    sent = Sent()
    yield sent
    sent.channels.stop()


def test_what_waits_goes_in_one_request_up_to_a_limit(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which it came."""
    monkeypatch.setattr(broker_channels, "ITEMS_MAX", 3)
    channel = sent.channels.to(2)
    for item in "abcde":
        channel.add(item)
    channel.send_waiting()

    assert sent.requests == [["a", "b", "c"], ["d", "e"]]
    assert sent.channels.to(2) is channel


def test_what_could_not_be_sent_is_handed_back(sent: Sent) -> None:
    """With the reason; the next items have another chance."""

    def fail() -> None:
        sent.before = lambda: None
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION)

    sent.before = fail
    channel = sent.channels.to(2)
    channel.add("a")
    channel.send_waiting()
    channel.add("b")
    channel.send_waiting()

    ((broker, items, reason),) = sent.failed
    assert (broker, items) == (2, ["a"])
    assert "NETWORK_EXCEPTION" in reason
    assert sent.requests == [["a"], ["b"]]


def test_while_a_request_is_under_way_the_next_fills_up(sent: Sent) -> None:
    """One request at a time, on the channel's own thread."""
    arrived, may_go, is_done = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        sent.before = is_done.set
        arrived.set()
        assert may_go.wait(TIMEOUT_S)

    sent.before = block
    sent.channels.start()
    channel = sent.channels.to(2)
    channel.add("a")
    assert arrived.wait(TIMEOUT_S)
    channel.add("b")
    channel.add("c")
    may_go.set()

    assert is_done.wait(TIMEOUT_S)
    assert sent.requests == [["a"], ["b", "c"]]


def test_nothing_that_waits_at_the_end_is_forgotten(sent: Sent) -> None:
    """Nor what comes after it, for a broker that is known or for another one."""
    channel = sent.channels.to(2)
    channel.add("a")
    sent.channels.stop()
    channel.add("b")
    sent.channels.to(3).add("c")

    assert [(broker, items) for broker, items, _ in sent.failed] == [(2, ["a"]), (2, ["b"]), (3, ["c"])]
    assert sent.link.is_closed.is_set()
    assert sent.requests == []
