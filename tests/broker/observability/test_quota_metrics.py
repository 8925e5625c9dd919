"""Metrics of quotas."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry
from tests.kit.services import NO_ZOOKEEPER

from ottla.broker.config import BrokerConfig
from ottla.broker.observability.quota_metrics import QuotaCollector
from ottla.broker.quotas.client_quotas import ClientQuotas
from ottla.broker.quotas.limits import DEFAULT, Entity, QuotaLimits
from ottla.broker.security.session import Session


def quotas() -> ClientQuotas:
    """Quotas by a clock that stands still."""
    config = BrokerConfig.of({"zookeeper.connect": "unused:1"})
    return ClientQuotas(NO_ZOOKEEPER, lambda: config, lambda: 0.0)


def test_those_with_a_quota_are_shown_under_kafkas_names() -> None:
    """With what they use, and how long they have to wait."""
    used = quotas()
    session = Session("PLAINTEXT", "127.0.0.1", "User:alice")
    for quota in (used.produce, used.fetch, used.request, used.mutation):
        quota.set_limits(QuotaLimits({Entity("alice"): 1.0}))
    used.produce.record(session, "c", 20)
    used.mutation.take(session, "c", 5, strict=True)
    registry = CollectorRegistry()
    registry.register(QuotaCollector(used))
    labels = {"user": "alice", "client_id": ""}

    assert registry.get_sample_value("kafka_server_produce_byte_rate", labels) == 2.0
    assert registry.get_sample_value("kafka_server_produce_throttle_time", labels) == 10_000
    assert registry.get_sample_value("kafka_server_controllermutation_tokens", labels) == 6.0
    assert registry.get_sample_value("kafka_server_fetch_byte_rate", labels) is None


def test_no_more_than_some_hundred_clients_are_shown() -> None:
    """Their names are not ours to choose."""
    used = quotas()
    used.produce.set_limits(QuotaLimits({Entity(None, DEFAULT): 1.0}))
    for number in range(300):
        used.produce.record(Session("PLAINTEXT", "127.0.0.1"), f"client-{number}", 1)
    families = {family.name: family.samples for family in QuotaCollector(used).collect()}

    shown = {sample.labels["client_id"] for sample in families["kafka_server_produce_byte_rate"]}
    assert len(shown) == 200
    assert "client-299" in shown


def test_the_page_names_every_metric_of_quotas() -> None:
    """Nobody looks for what is not written down."""
    page = (Path(__file__).parents[3] / "docs" / "METRICS.md").read_text()

    assert [family.name for family in QuotaCollector(quotas()).collect() if f"`{family.name}`" not in page] == []
