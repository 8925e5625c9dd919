"""The reader of expressions that the tests of dashboards stand on."""

from __future__ import annotations

import pytest
from tests.deployment.promql import Selector, used


@pytest.mark.parametrize(
    ("expression", "selectors", "grouped_by"),
    [
        ("up", [Selector("up")], set()),
        ('up{job="a"} == 0', [Selector("up", (("job", "=", "a"),))], set()),
        ("sum by (a, b) (rate(x_total[5m])) > 0.15", [Selector("x_total")], {"a", "b"}),
        ("sum(x) by (a) / on () group_left (c) max without (d) (y)", [Selector("x"), Selector("y")], {"a", "c", "d"}),
        ('x{a=~"$a",b!=""} unless y', [Selector("x", (("a", "=~", "$a"), ("b", "!=", ""))), Selector("y")], set()),
        ("histogram_quantile(0.95, sum by (le) (rate(x_bucket[$__rate_interval])))", [Selector("x_bucket")], {"le"}),
        ("topk(20, x) and y * 1e3 or z", [Selector("x"), Selector("y"), Selector("z")], set()),
    ],
)
def test_metrics_matchers_and_groups_are_found(
    expression: str, selectors: list[Selector], grouped_by: set[str]
) -> None:
    """Functions, aggregations, numbers and ranges are none of them."""
    found = used(expression)
    assert (found.selectors, found.grouped_by) == (selectors, grouped_by)


@pytest.mark.parametrize("expression", ["sum(x", "x{a=}", "x ? y"])
def test_what_is_not_promql_is_refused(expression: str) -> None:
    """At least where it would be misread."""
    with pytest.raises(ValueError, match="not PromQL"):
        used(expression)


def test_matchers_select_as_prometheus_does() -> None:
    """A missing label is an empty one; a variable of a dashboard is some value."""
    assert used('x{a="1"}').selectors[0].selects({"a": "1", "b": "2"})
    assert not used('x{a="1"}').selectors[0].selects({"b": "2"})
    assert used('x{a=""}').selectors[0].selects({})
    assert not used('x{a!=""}').selectors[0].selects({})
    assert used('x{a=~"$a"}').selectors[0].selects({"a": "1"})
    assert not used('x{a=~"$a"}').selectors[0].selects({})
