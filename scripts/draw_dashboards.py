"""Draw the dashboards as SVG, from what a Prometheus has: for documentation, and where there is no Grafana.

    python -m scripts.draw_dashboards --prometheus http://localhost:9090 --minutes 10 cluster groups

The expressions are those that Grafana sends; variables at the top stand for all their values.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

from scripts.grafana_dashboards import DASHBOARDS
from scripts.grafana_panels import Dashboard, Kind, Panel

FOLDER: Final = Path(__file__).parent.parent / "docs" / "images"
_COLUMN, _ROW = 46, 26
_COLORS: Final = ("#3274d9", "#e0752d", "#299c46", "#a352cc", "#d44a3a", "#1f9e9e", "#b8860b", "#7a7a7a")
_POINTS = 100
_LEGENDS_MAX = 4
_TABLE_ROWS_MAX = 7
_RATE_INTERVAL = "1m"
_UNITS: Final[Mapping[str, str]] = {"Bps": "B/s", "bytes": "B", "cps": "/s", "reqps": "/s", "s": "s", "ms": "ms"}


class Line(NamedTuple):
    """A series: its legend, and numbers by the share of the time, from 0 to 1."""

    legend: str
    points: list[tuple[float, float]]


class Prometheus:
    """Asks a server for a range of time."""

    def __init__(self, url: str, minutes: float, end: float | None = None) -> None:
        self._url = url.rstrip("/")
        self._end = time.time() if end is None else end
        self._start = self._end - minutes * 60

    def lines(self, panel: Panel) -> list[Line]:
        """Return the series of a panel, the largest first."""
        found = []
        for legend, expression in panel.targets.items():
            for series in self._ask(plain(expression)):
                points = [
                    ((at - self._start) / (self._end - self._start), value)
                    for at, text in series["values"]
                    if math.isfinite(value := float(text))
                ]
                if points:
                    found.append(Line(_legend(legend, series["metric"]), points))
        return sorted(found, key=lambda line: (-max(value for _, value in line.points), line.legend))

    def _ask(self, expression: str) -> list[dict[str, Any]]:
        step = max(1.0, (self._end - self._start) / _POINTS)
        query = {"query": expression, "start": self._start, "end": self._end, "step": step}
        with urllib.request.urlopen(f"{self._url}/api/v1/query_range?{urllib.parse.urlencode(query)}") as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return result


def plain(expression: str) -> str:
    """Put something for what only Grafana knows."""
    return re.sub(r"\$\w+", ".*", expression.replace("$__rate_interval", _RATE_INTERVAL))


def _legend(legend: str, labels: Mapping[str, str]) -> str:
    if legend:
        return re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), legend)
    # The partition after its topic.
    names = sorted(labels.keys() - {"__name__", "instance", "job"}, key=lambda name: (name == "partition", name))
    return " ".join(labels[name] for name in names)


def shown(value: float, unit: str) -> str:
    """Write a number as people read it."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    suffix = _UNITS.get(unit, "")
    if unit in ("s", "ms"):
        seconds = value if unit == "s" else value / 1000
        for size, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if seconds >= size:
                return f"{seconds / size:.3g} {name}"
        return "0"
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {name}{suffix}"
    return f"{value:.3g} {suffix}".rstrip()


def drawing(dashboard: Dashboard, prometheus: Prometheus) -> str:
    """Return a dashboard as SVG."""
    panels = {panel.title: panel for panel in dashboard.panels}
    parts: list[str] = []
    bottom = 0
    heading = ""
    for made in dashboard.to_json()["panels"]:
        place = made["gridPos"]
        left, top = place["x"] * _COLUMN, place["y"] * _ROW + 40
        width, height = place["w"] * _COLUMN - 6, place["h"] * _ROW - 6
        bottom = max(bottom, top + height)
        if made["type"] == "row":
            heading = made["title"]
            parts.append(_text(left + 4, top + 17, heading, size=13, weight="bold"))
            continue
        # The same title may stand in two rows.
        panel = next((each for each in dashboard.rows[heading] if each.title == made["title"]), panels[made["title"]])
        parts.append(f'<g transform="translate({left},{top})">')
        parts.append(f'<rect width="{width}" height="{height}" rx="3" fill="#fff" stroke="#d5d8dc"/>')
        parts.extend(_panel(panel, prometheus.lines(panel), width, height))
        parts.append("</g>")
    size = f'width="{24 * _COLUMN}" height="{bottom + 8}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="Helvetica, Arial, sans-serif">',
            f'<rect {size} fill="#f4f5f5"/>',
            _text(6, 24, f"Ottla / {dashboard.title}", size=17, weight="bold"),
            *parts,
            "</svg>\n",
        ]
    )


def _text(x: float, y: float, text: str, *, size: int = 10, weight: str = "normal", color: str = "#24292e") -> str:
    style = f'font-size="{size}" font-weight="{weight}" fill="{color}"'
    return f'<text x="{x:.0f}" y="{y:.0f}" {style}>{escape(text)}</text>'


def _panel(panel: Panel, lines: Sequence[Line], width: int, height: int) -> Iterator[str]:
    yield _text(8, 16, panel.title, size=11, weight="bold")
    if panel.kind is Kind.NUMBER:
        value = lines[0].points[-1][1] if lines else 0.0
        yield _text(10, height - 22, shown(value, panel.unit), size=30, color=_color(panel, value))
    elif panel.kind is Kind.TABLE:
        latest = sorted(lines, key=lambda line: (-line.points[-1][1], line.legend))
        for index, line in enumerate(latest[:_TABLE_ROWS_MAX]):
            yield _text(10, 38 + index * 18, line.legend, size=10)
            yield _text(width - 80, 38 + index * 18, shown(line.points[-1][1], panel.unit), size=10)
    else:
        yield from _chart(panel, lines, width, height)


def _color(panel: Panel, value: float) -> str:
    if panel.limits is None:
        return _COLORS[0]
    orange, red = panel.limits
    if orange <= red:
        return "#d44a3a" if value >= red else "#e0752d" if value >= orange else "#299c46"
    return "#299c46" if value >= orange else "#e0752d" if value >= red else "#d44a3a"


def _chart(panel: Panel, lines: Sequence[Line], width: int, height: int) -> Iterator[str]:
    left, top, right, bottom = 62, 28, width - 8, height - 14 - 13 * min(len(lines), _LEGENDS_MAX)
    drawn = _stacked(lines) if panel.is_stacked else lines
    highest = _round(max((value for line in drawn for _, value in line.points), default=1.0))
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * (bottom - top)
        yield f'<line x1="{left}" x2="{right}" y1="{y:.0f}" y2="{y:.0f}" stroke="#e4e7ea"/>'
        yield _text(6, y + 3, shown(share * highest, panel.unit), size=9, color="#586069")
    for index, line in enumerate(drawn):
        color = _COLORS[index % len(_COLORS)]
        points = " ".join(
            f"{left + share * (right - left):.0f},{bottom - max(value, 0) / highest * (bottom - top):.1f}"
            for share, value in line.points
        )
        yield f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.3"/>'
    for index, line in enumerate(lines[:_LEGENDS_MAX]):
        y = bottom + 15 + 13 * index
        color = _COLORS[index % len(_COLORS)]
        yield f'<rect x="10" y="{y - 5}" width="10" height="3" fill="{color}"/>'
        more = f"  (and {len(lines) - _LEGENDS_MAX} more)" if index == _LEGENDS_MAX - 1 < len(lines) - 1 else ""
        yield _text(25, y, f"{line.legend}: {shown(line.points[-1][1], panel.unit)}{more}", size=9)


def _stacked(lines: Sequence[Line]) -> list[Line]:
    """Each on top of those after it, so that colours match the legends."""
    total: dict[float, float] = {}
    stacked = []
    for line in reversed(lines):
        for at, value in line.points:
            total[at] = total.get(at, 0.0) + value
        stacked.append(Line(line.legend, [(at, total[at]) for at, _ in line.points]))
    return stacked[::-1]


def _round(value: float) -> float:
    """Return the next round number."""
    if value <= 0:
        return 1.0
    unit = float(10 ** math.floor(math.log10(value)))
    return next(step * unit for step in (1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0) if step * unit >= value * 0.999)


def main(arguments: list[str] | None = None) -> int:
    """Draw dashboards."""
    parser = argparse.ArgumentParser(description="Draw dashboards as SVG.")
    parser.add_argument("dashboards", nargs="*", metavar="NAME", help="of those in config/grafana/dashboards; all")
    parser.add_argument("--prometheus", default="http://localhost:9090", metavar="URL")
    parser.add_argument("--minutes", type=float, default=10.0, help="how far back")
    parser.add_argument("--output", type=Path, default=FOLDER, metavar="FOLDER")
    options = parser.parse_args(arguments)
    prometheus = Prometheus(options.prometheus, options.minutes)
    options.output.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        if not options.dashboards or dashboard.name in options.dashboards:
            (options.output / f"{dashboard.name}.svg").write_text(drawing(dashboard, prometheus))
    return 0


if __name__ == "__main__":
    sys.exit(main())
