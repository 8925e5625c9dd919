"""`ottla bench` on a real broker: that it counts right; how fast it is, is for `bench/`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.client.cli.conftest import Ottla

from ottla.client.cli.records.measuring import PERCENTILES, percentiles


def test_what_is_produced_is_there_and_consumed(ottla: Ottla, topic: str) -> None:
    """As a table and as JSON."""
    ottla("topic", "create", topic, "-p", "2")
    (produced,) = ottla("bench", "produce", topic, "-n", "500", "--size", "20", "--format", "json").items
    assert (produced["topic"], produced["records"], produced["bytes"]) == (topic, 500, 10_000)
    assert set(produced["latency_ms"]) == set(PERCENTILES)
    assert 0 < produced["latency_ms"]["p50"] <= produced["latency_ms"]["max"]

    shown = ottla("bench", "produce", topic, "-n", "100", "--rate", "100000", "--acks", "1")
    assert (shown.code, shown.rows[0][0]) == (0, "100")
    assert shown.out.split()[:5] == ["RECORDS", "SECONDS", "RECORDS/S", "MB/S", "P50-MS"]

    (consumed,) = ottla("bench", "consume", topic, "--format", "json").items
    assert (consumed["records"], consumed["bytes"], consumed["latency_ms"]) == (600, 20_000, None)
    assert ottla("bench", "consume", topic, "-n", "7").rows[0][0] == "7"


def test_records_are_timed_from_end_to_end(ottla: Ottla, topic: str) -> None:
    """All that were written come back, and what others wrote does not count."""
    ottla("topic", "create", topic, "-p", "2")
    ottla("topic", "produce", topic, "of somebody else")
    (measured,) = ottla("bench", "e2e", topic, "-n", "50", "--rate", "1000", "--format", "json").items
    assert (measured["records"], measured["bytes"]) == (50, 5_000)
    assert 0 < measured["latency_ms"]["p50"] <= measured["latency_ms"]["p99_9"] <= measured["latency_ms"]["max"]
    assert ottla("bench", "e2e", topic, "-n", "5", "--rate", "1000").rows[0][0] == "5"


def test_a_measurement_ends_in_time(ottla: Ottla, topic: str) -> None:
    """A rate and a time make a number of records, whatever the broker does."""
    ottla("topic", "create", topic)
    (measured,) = ottla("bench", "produce", topic, "--rate", "100", "--seconds", "0.1", "--format", "json").items
    assert 0 < measured["records"] <= 10
    assert ottla("bench", "consume", topic, "--seconds", "60").rows[0][0] == str(measured["records"])


def test_an_empty_topic_and_a_missing_one_are_told_apart(ottla: Ottla, topic: str) -> None:
    """Nothing was read, or there is nothing to read."""
    ottla("topic", "create", topic)
    assert ottla("bench", "consume", topic).rows[0][0] == "0"
    missing = ottla("bench", "consume", "not-there")
    assert (missing.code, "there is no topic 'not-there'" in missing.err) == (1, True)
    assert ottla("bench", "produce", topic, "--acks", "2").code == 2
    assert ottla("bench", "produce", topic, "--size", "1").code == 2


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_percentiles_are_samples(samples: list[float]) -> None:
    """In order, and so large a part of the samples is not above them."""
    found = percentiles(samples)
    assert found is not None
    assert list(found.values()) == sorted(found.values())
    rounded = [round(sample * 1000, 3) for sample in samples]
    for name, part in PERCENTILES.items():
        assert found[name] in rounded
        assert sum(sample <= found[name] for sample in rounded) >= part * len(samples)


def test_no_samples_have_no_percentiles() -> None:
    """Rather than zeros."""
    assert percentiles([]) is None
    assert percentiles([0.002]) == dict.fromkeys(PERCENTILES, 2.0)
