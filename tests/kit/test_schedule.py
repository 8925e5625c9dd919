"""Tests that share something dear to start go to one worker."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def dear() -> str:
    """Stands for processes that a module starts once."""
    return "dear"


def test_a_fixture_of_the_module_makes_a_group(request: pytest.FixtureRequest, dear: str) -> None:
    """Under pytest-xdist the name of the group is part of the test's: that is what it hands tests out by."""
    mark = request.node.get_closest_marker("xdist_group")

    assert mark is not None
    assert mark.args == ("test_schedule.py",)
    if hasattr(request.config, "workerinput"):
        assert request.node.nodeid.endswith("@test_schedule.py")


def test_a_test_that_shares_nothing_has_no_group(request: pytest.FixtureRequest) -> None:
    """Whichever worker is free takes it."""
    assert request.node.get_closest_marker("xdist_group") is None
