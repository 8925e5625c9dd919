"""How much goes through the cluster. Our brokers count it; of others, the ends of partitions tell what is written."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from ottla.client.admin.results import OffsetSpec
from ottla.console.cluster.brokers_http import path_of
from ottla.console.cluster.view import ClusterView
from ottla.protocol.identifiers import TopicPartition

# With more partitions, their ends are not asked for just to show a rate.
_PARTITIONS_MAX: Final = 2_000


class ClusterRates(msgspec.Struct, kw_only=True):
    """Rates over the last seconds; null where they are not known, or not yet."""

    records_in_per_s: float | None = None
    bytes_in_per_s: float | None = None
    bytes_out_per_s: float | None = None
    requests_per_s: float | None = None
    source: Literal["brokers", "offsets", "none"] = "none"
    """Where they come from: our brokers' counters, or the growth of partitions."""


async def cluster_rates(view: ClusterView) -> ClusterRates:
    """Return the rates of the whole cluster."""
    state = await view.state()
    pages, _ = await view.brokers_http.get_all(state.brokers, path_of("broker"))
    if pages:
        totals: dict[str, float | None] = {}
        for name in ("records_in", "bytes_in", "bytes_out", "requests"):
            rates = [view.rates.per_second((name, broker), _number(page, name)) for broker, page in pages.items()]
            known = [rate for rate in rates if rate is not None]
            totals[f"{name}_per_s"] = sum(known) if known else None
        return ClusterRates(**totals, source="brokers")
    partitions = [
        TopicPartition(topic.name, number)
        for topic in state.topics.values()
        if not topic.is_internal
        for number in topic.partitions
    ]
    if not partitions or len(partitions) > _PARTITIONS_MAX:
        return ClusterRates()
    ends = await view.listed_offsets(partitions, OffsetSpec.LATEST)
    rates = [view.rates.per_second(("end", each.topic, each.partition), each.offset) for each in ends]
    known = [rate for rate in rates if rate is not None]
    return ClusterRates(records_in_per_s=sum(known) if known else None, source="offsets")


def _number(page: Any, name: str) -> int:
    value = page.get(name) if isinstance(page, dict) else None
    return value if isinstance(value, int) else 0
