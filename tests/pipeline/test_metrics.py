"""The metrics of queries have the names that the dashboards ask for."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast
from urllib.request import urlopen

import pytest

from ottla.pipeline.errors import SettingsError
from ottla.pipeline.metrics import JobMetrics, MetricsListener, lags

PROGRESS = {
    "id": "0-0",
    "name": "archive",
    "numInputRows": 50,
    "inputRowsPerSecond": 10.0,
    "processedRowsPerSecond": 25.0,
    "durationMs": {"addBatch": 1500, "triggerExecution": 2000},
    "sources": [{"endOffset": {"orders": {"0": 50}}, "latestOffset": {"orders": {"0": 57, "1": 3}}}],
}


def reported(metrics: JobMetrics, **changes: Any) -> None:
    """Report the progress of a query."""
    event = SimpleNamespace(progress=SimpleNamespace(json=json.dumps(PROGRESS | changes)))
    MetricsListener(metrics).onQueryProgress(cast(Any, event))


def test_a_report_of_spark_becomes_metrics() -> None:
    """Rates, durations, counts, and the lag of each partition."""
    metrics = JobMetrics("archive")

    reported(metrics)
    reported(metrics)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(
            f"ottla_pipeline_{name}", {"job": "archive", "query": "archive", **labels}
        )

    assert value("input_rows_per_second") == 10
    assert value("processed_rows_per_second") == 25
    assert value("lag_records", topic="orders", partition="0") == 7
    assert value("batch_duration_seconds_count") == 2
    assert value("batch_duration_seconds_sum") == 4
    assert value("batches_total") == 2
    assert value("rows_total") == 100


def test_an_idle_query_counts_no_batches() -> None:
    """Spark then reports without having run one, with rates that are not numbers."""
    metrics = JobMetrics("archive")

    reported(metrics, durationMs={"triggerExecution": 5}, inputRowsPerSecond="NaN", numInputRows=0)

    labels = {"job": "archive", "query": "archive"}
    assert metrics.registry.get_sample_value("ottla_pipeline_batches_total", labels) is None
    assert metrics.registry.get_sample_value("ottla_pipeline_input_rows_per_second", labels) == 0


@pytest.mark.parametrize(
    ("latest", "end", "found"),
    [
        ('{"a": {"0": 5}}', '{"a": {"0": 2}}', {("a", "0"): 3}),
        ({"a": {"0": 1}}, {"a": {"0": 2}}, {("a", "0"): 0}),
        (None, {"a": {"0": 2}}, {}),
        ("no JSON", "[1]", {}),
        ({"a": 1}, {"a": {"0": 2}}, {}),
    ],
)
def test_lag_is_known_where_both_offsets_are(latest: Any, end: Any, found: dict[tuple[str, str], int]) -> None:
    """Other sources report other things, or nothing."""
    assert dict(lags(latest, end)) == found


def test_metrics_are_served_until_the_job_ends() -> None:
    """A port that is taken is told in plain words."""
    metrics = JobMetrics("replay")
    metrics.batch_done("replay", 5, 0.1)

    with metrics.served("127.0.0.1", 0) as address:
        with urlopen(address, timeout=60) as response:
            text = response.read().decode()
        port = int(address.split(":")[2].partition("/")[0])
        with pytest.raises(SettingsError, match="cannot serve metrics"), JobMetrics("replay").served("127.0.0.1", port):
            pass

    assert 'ottla_pipeline_rows_total{job="replay",query="replay"} 5.0' in text
