"""Which test runs in which worker, and when. `make test` has four workers, which take tests from one list.

Tests that share something dear to start stay in one worker: a group. All others go to the worker that is free. What
takes longest comes first, so that thousands of short tests fill what is left at the end.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

# Fixtures that one worker starts for all tests of the run, each with the name of its group.
SHARED = {
    "spark": "spark",
    "pipeline_cluster": "spark",
    "secure_broker": "secure broker",
    "kafka": "kafka",
}
# The limit of the first test in a worker that has one counts from before Spark or Kafka starts, which took more than
# five minutes at a load of 40.
SHARING_SECONDS_MAX = 900
# From the longest to the shortest; a test belongs to the first of which it has a fixture.
_ORDER = (
    frozenset({"spark", "pipeline_cluster"}),
    frozenset({"cluster", "networked_cluster", "network"}),
    frozenset({"kafka", "run_tool", "secure_broker"}),
    frozenset({"zookeeper_server", "bench"}),
)
# Tests that start clusters without a fixture that says so, and a group that takes five minutes in `make test-all`. At
# the end of a run, the other workers would wait for them.
_LONG_FOLDERS = ("client/testing", "client/local_cluster", "client/cli", "console", "hostile")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Name the groups, and put what takes long in front of what pytest-randomly has shuffled."""
    for item in items:
        if (group := group_of(item)) is not None:
            item.add_marker(pytest.mark.xdist_group(group))
            if group in SHARED.values() and item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(SHARING_SECONDS_MAX))
    yield
    # Fault tests share clusters, which end when others follow.
    items.sort(key=lambda item: (_rank(item), "tests/faults" not in item.path.parent.as_posix()))


def group_of(item: pytest.Item) -> str | None:
    """Return the group of a test, or None where it may run in any worker."""
    if not isinstance(item, pytest.Function):
        return None
    for fixture, group in SHARED.items():
        if fixture in item.fixturenames:
            return group
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        if definitions[-1].scope in {"class", "module", "package"}:
            return item.path.name
    return None


def _rank(item: pytest.Item) -> int:
    used = set(item.fixturenames) if isinstance(item, pytest.Function) else set()
    folder = item.path.parent.as_posix()
    least = len(_ORDER) - (1 if any(f"tests/{each}" in folder for each in _LONG_FOLDERS) else 0)
    return next((rank for rank, fixtures in enumerate(_ORDER) if fixtures & used), least)
