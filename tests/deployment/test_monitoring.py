"""Dashboards and alerts have data: every metric and label that they use is shown by a cluster that works."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.exposition import generate_latest
from scripts.grafana_dashboards import DASHBOARDS, FOLDER, text_of
from scripts.grafana_panels import DATA_SOURCE, Dashboard
from tests.deployment.loaded_cluster import Series, loaded_cluster, samples, series_of
from tests.deployment.promql import used
from tests.kit.zookeeper import ZooKeeperServer

from ottla.pipeline.metrics import JobMetrics

CONFIG = Path(__file__).parents[2] / "config"
KNOWN = tomllib.loads((Path(__file__).parent / "known_dashboards.toml").read_text())
ALERTS: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((CONFIG / "prometheus" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
# Prometheus makes it itself, for each target.
SELF_MADE: Series = {"up": [{"job": "ottla", "instance": "1"}]}
EXPECTED_ALERTS = {
    "AbnormalControllerState",
    "ConsumerGroupLag",
    "OfflineLogDirectoryCount",
    "OfflinePartitions",
    "RunningOutOfSpace",
    "UnderMinIsrPartitionCount",
    "UnderReplicatedPartitions",
}


@pytest.fixture(scope="module")
def series(zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    """What a loaded cluster and a job of the pipeline show."""
    with loaded_cluster(tmp_path_factory.mktemp("loaded"), zookeeper_server) as brokers:
        yield {**series_of(brokers), **pipeline_series(), **SELF_MADE}


def pipeline_series() -> Series:
    """What a job shows that has done a batch."""
    metrics = JobMetrics("archive")
    metrics.query_runs("archive-orders", True)
    metrics.batch_done("archive-orders", 10, 0.5)
    metrics.rates("archive-orders", 10.0, 20.0)
    metrics.lag("archive-orders", {("orders", "0"): 5})
    found: dict[str, list[Any]] = {}
    for name, labels in samples(generate_latest(metrics.registry).decode()):
        found.setdefault(name, []).append({**labels, "instance": "archive"})
    return found


def check(expression: str, named: set[str], series: Series) -> None:
    """Every selector finds a series, and all labels that are grouped by or named are among those of what it finds."""
    parts = used(expression)
    assert parts.selectors, expression
    labels: set[str] = set()
    for selector in parts.selectors:
        assert selector.metric in series, f"{selector.metric} is not shown; {expression}"
        selected = [each for each in series[selector.metric] if selector.selects(each)]
        assert selected, f"nothing is selected by {selector}"
        labels.update(*selected)
    assert parts.grouped_by <= labels, expression
    assert named <= labels, f"{named - labels} are not labels of {expression}"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: str(dashboard.name))
def test_every_panel_has_data(dashboard: Dashboard, series: Series) -> None:
    """Also the labels in legends exist, and the choices at the top have values."""
    for panel in dashboard.panels:
        for legend, expression in panel.targets.items():
            check(expression, set(re.findall(r"{{(\w+)}}", legend)), series)
    for variable in dashboard.variables:
        assert any(variable.label in labels for labels in series[variable.metric])


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))
def test_every_alert_can_fire(alert: dict[str, Any], series: Series) -> None:
    """It has a severity and words for people, and what it asks for is there."""
    assert alert["labels"]["severity"] in {"warning", "critical"}
    assert set(alert["annotations"]) == {"summary", "description"}
    words = "".join(alert["annotations"].values())
    check(alert["expr"], set(re.findall(r"\$labels\.(\w+)", words)), series)


@pytest.mark.parametrize("name", KNOWN)
def test_known_dashboards_find_their_metrics(name: str, series: Series) -> None:
    """Those that people have from elsewhere."""
    for metric, labels in KNOWN[name].items():
        assert metric in series
        assert any(set(labels) <= each.keys() for each in series[metric]), metric


def test_alerts_have_the_names_that_people_know() -> None:
    """And none has the name of another."""
    names = [alert["alert"] for alert in ALERTS]
    assert set(names) >= EXPECTED_ALERTS
    assert len(names) == len(set(names))


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: str(dashboard.name))
def test_the_dashboards_are_current(dashboard: Dashboard) -> None:
    """`make docs` writes them."""
    assert (FOLDER / f"{dashboard.name}.json").read_text() == text_of(dashboard)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: str(dashboard.name))
def test_panels_have_places_of_their_own(dashboard: Dashboard) -> None:
    """They neither overlap nor stick out."""
    taken: set[tuple[int, int]] = set()
    for panel in dashboard.to_json()["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_grafana_finds_the_dashboards_and_their_source() -> None:
    """The folder has a file for each of them, and no others."""
    (source,) = yaml.safe_load((CONFIG / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert (source["uid"], source["type"]) == (DATA_SOURCE["uid"], DATA_SOURCE["type"])
    assert {path.stem for path in FOLDER.iterdir()} == {dashboard.name for dashboard in DASHBOARDS}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool, a part of Prometheus, is not on the PATH")
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", str(CONFIG / "prometheus" / "prometheus.yml")),
        ("test", "rules", str(Path(__file__).parent / "alerts.test.yml")),
    ],
    ids=lambda arguments: str(arguments[0]),
)
def test_prometheus_takes_the_configuration(arguments: tuple[str, ...]) -> None:
    """Its own tool says so; and alerts fire when they must, and not otherwise."""
    assert subprocess.run(["promtool", *arguments], check=False, timeout=60).returncode == 0
