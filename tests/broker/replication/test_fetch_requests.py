"""A follower's fetches as bytes."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.broker.config import BrokerConfig
from ottla.broker.replication.follower.leader_client import FetchRequests
from ottla.broker.replication.follower.steps import FetchPosition
from ottla.client.net.fetch_session_client import SessionFetch, SessionPartition
from ottla.protocol.codec import encode

ID_OF = {"a": b"A" * 16, "b": b"B" * 16}
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
named = st.builds(
    lambda topic, index: SessionPartition(topic, ID_OF[topic], index), st.sampled_from("ab"), st.integers(0, 2)
)
positions = st.builds(FetchPosition, int64, int32, int32, int64)


@examples(100)
@given(
    st.integers(15, 17),
    st.dictionaries(named, positions, max_size=2),
    st.lists(named, max_size=1),
    int32,
    int32,
    int32,
    int64,
)
def test_fetches_are_packed_as_they_are_declared(
    version: int,
    asked: dict[SessionPartition, FetchPosition],
    forgotten: list[SessionPartition],
    session_id: int,
    session_epoch: int,
    wait_ms: int,
    broker_epoch: int,
) -> None:
    """The short way gives the bytes of the long one."""
    config = BrokerConfig.of({"log.dirs": str(Path("unused"))})
    requests = FetchRequests(5, lambda: broker_epoch, config)
    fetch = SessionFetch(session_id, session_epoch, asked, forgotten)
    assert requests.encoded(version, fetch, wait_ms) == encode(requests.message(version, fetch, wait_ms), version)
