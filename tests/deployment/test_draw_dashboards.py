"""Dashboards as pictures."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import pytest
from scripts.draw_dashboards import main, plain, shown
from scripts.grafana_dashboards import DASHBOARDS, GROUPS

TEXT = "{http://www.w3.org/2000/svg}text"


@pytest.fixture
def prometheus() -> Iterator[str]:
    """A server that has two series, and a hole, for whatever is asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query)
            start, end = float(asked["start"][0]), float(asked["end"][0])
            labels = {"consumergroup": "billing", "topic": "orders", "instance": "a <b>"}
            values = [[start, "0"], [(start + end) / 2, "NaN"], [end, "2500"]]
            result = [{"metric": labels | {"partition": str(n)}, "values": values} for n in range(2)]
            body = json.dumps({"data": {"result": result}}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class names it
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_every_dashboard_becomes_a_picture(prometheus: str, tmp_path: Path) -> None:
    """Well-formed, with the titles of all panels and what the server had."""
    assert main(["--prometheus", prometheus, "--output", str(tmp_path)]) == 0
    for dashboard in DASHBOARDS:
        root = ElementTree.fromstring((tmp_path / f"{dashboard.name}.svg").read_text())
        texts = {element.text for element in root.iter(TEXT)}
        assert {panel.title for panel in dashboard.panels} <= texts
        assert any(text and "2.5 k" in text for text in texts)


def test_one_dashboard_can_be_drawn_alone(prometheus: str, tmp_path: Path) -> None:
    """The others are left alone."""
    main(["--prometheus", prometheus, "--output", str(tmp_path), GROUPS.name])
    assert [path.name for path in tmp_path.iterdir()] == ["groups.svg"]


def test_variables_of_grafana_are_filled_in() -> None:
    """With an interval, and with all values."""
    assert plain('rate(x{a=~"$a"}[$__rate_interval])') == 'rate(x{a=~".*"}[1m])'


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "short", "0"),
        (1234, "short", "1.23 k"),
        (2_500_000, "Bps", "2.5 MB/s"),
        (0.25, "percentunit", "25 %"),
        (0.0042, "s", "4.2 ms"),
        (0.5, "ms", "500 µs"),
        (0, "s", "0"),
        (12, "cps", "12 /s"),
    ],
)
def test_numbers_are_written_as_people_read_them(value: float, unit: str, text: str) -> None:
    """With their units."""
    assert shown(value, unit) == text
