"""Panels and dashboards as short descriptions, and the JSON that Grafana reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

DATA_SOURCE: Final = {"type": "prometheus", "uid": "prometheus"}
_COLUMNS: Final = 24
# The version of Grafana's dashboard model; newer ones read it.
_SCHEMA: Final = 39
_GREEN, _ORANGE, _RED = "green", "orange", "red"


class Kind(StrEnum):
    """How a panel shows its numbers."""

    LINES = "timeseries"
    NUMBER = "stat"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Panel:
    """A title, and expressions by their legends; `{{label}}` in a legend is the value of a label."""

    title: str
    targets: Mapping[str, str]
    unit: str = "short"
    kind: Kind = Kind.LINES
    about: str = ""
    width: int = 8
    height: int = 8
    is_stacked: bool = False
    # Of a number: where it turns orange, and where red. With the red one first, small numbers are the bad ones.
    limits: tuple[float, float] | None = None


def number(title: str, expression: str, *, limits: tuple[float, float] | None = None, unit: str = "none") -> Panel:
    """A single number; there is room for eight in a row."""
    return Panel(title, {"": expression}, unit, Kind.NUMBER, width=3, height=4, limits=limits)


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of a dashboard: values of a label of a metric."""

    label: str
    metric: str
    # Else it is one value at a time.
    is_multiple: bool = True

    def to_json(self) -> dict[str, Any]:
        """What Grafana reads."""
        query = f"label_values({self.metric}, {self.label})"
        choice = {"includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
        return {
            "name": self.label,
            "type": "query",
            "datasource": DATA_SOURCE,
            "query": {"query": query, "refId": self.label},
            "definition": query,
            "refresh": 2,
            "sort": 1,
            **(choice if self.is_multiple else {}),
        }


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Rows of panels, each with its heading."""

    name: str
    title: str
    rows: Mapping[str, Sequence[Panel]]
    variables: Sequence[Variable] = field(default=())

    @property
    def panels(self) -> Iterator[Panel]:
        """All panels."""
        for panels in self.rows.values():
            yield from panels

    def to_json(self) -> dict[str, Any]:
        """What Grafana reads."""
        return {
            "uid": f"ottla-{self.name}",
            "title": f"Ottla / {self.title}",
            "tags": ["ottla"],
            "schemaVersion": _SCHEMA,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "10s",
            "time": {"from": "now-30m", "to": "now"},
            "links": [{"type": "dashboards", "tags": ["ottla"], "asDropdown": False, "title": ""}],
            "templating": {"list": [variable.to_json() for variable in self.variables]},
            "panels": self._panels(),
        }

    def _panels(self) -> list[dict[str, Any]]:
        """Lay the rows out from the top, and the panels of a row from the left."""
        made: list[dict[str, Any]] = []
        top = 0
        for heading, panels in self.rows.items():
            grid = {"h": 1, "w": _COLUMNS, "x": 0, "y": top}
            made.append({"type": "row", "title": heading, "collapsed": False, "panels": [], "gridPos": grid})
            top += 1
            left = height = 0
            for panel in panels:
                if left + panel.width > _COLUMNS:
                    left, top, height = 0, top + height, 0
                place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
                made.append(_panel(panel) | {"gridPos": place})
                left, height = left + panel.width, max(height, panel.height)
            top += height
        return [panel | {"id": number} for number, panel in enumerate(made, 1)]


def _panel(panel: Panel) -> dict[str, Any]:
    is_table = panel.kind is Kind.TABLE
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": DATA_SOURCE,
            "expr": expression,
            "legendFormat": legend or "__auto",
            "instant": panel.kind is not Kind.LINES,
            "range": panel.kind is Kind.LINES,
            "format": "table" if is_table else "time_series",
        }
        for index, (legend, expression) in enumerate(panel.targets.items())
    ]
    custom: dict[str, Any] = {}
    if panel.kind is Kind.LINES:
        custom = {"lineWidth": 1, "fillOpacity": 30 if panel.is_stacked else 8, "showPoints": "never"}
        custom["stacking"] = {"mode": "normal" if panel.is_stacked else "none"}
    # A sum over no series is nothing; of what is counted that means none.
    defaults: dict[str, Any] = {"unit": panel.unit, "custom": custom, "noValue": "0"}
    if panel.kind is Kind.LINES:
        defaults["min"] = 0
    if panel.limits is not None:
        defaults["thresholds"] = {"mode": "absolute", "steps": _steps(panel.limits)}
    made: dict[str, Any] = {
        "type": panel.kind.value,
        "title": panel.title,
        "description": panel.about,
        "datasource": DATA_SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": targets,
        "options": _OPTIONS[panel.kind],
    }
    if is_table:
        hidden = dict.fromkeys(("Time", "__name__", "instance", "job"), True)
        made["transformations"] = [{"id": "organize", "options": {"excludeByName": hidden}}]
    return made


_OPTIONS: Final[Mapping[Kind, dict[str, Any]]] = {
    Kind.LINES: {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    Kind.NUMBER: {"colorMode": "value", "graphMode": "none", "reduceOptions": {"calcs": ["lastNotNull"]}},
    Kind.TABLE: {"showHeader": True, "cellHeight": "sm"},
}


def _steps(limits: tuple[float, float]) -> list[dict[str, Any]]:
    orange, red = limits
    if orange <= red:
        return [
            {"color": _GREEN, "value": None},
            {"color": _ORANGE, "value": orange},
            {"color": _RED, "value": red},
        ]
    return [{"color": _RED, "value": None}, {"color": _ORANGE, "value": red}, {"color": _GREEN, "value": orange}]
