"""Tests that share something dear to start go to one worker, and some command of the Makefile runs each of them."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from tests.kit.schedule import SHARING_SECONDS_MAX

MAKEFILE = Path(__file__).parents[2] / "Makefile"


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


@pytest.fixture
def secure_broker() -> None:
    """Stands for one that all tests of the run share."""


def test_what_a_run_starts_once_has_time_to_start(request: pytest.FixtureRequest, secure_broker: None) -> None:
    """Whichever test asks for it first; one that knows better says so itself."""
    mark = request.node.get_closest_marker("timeout")

    assert mark is not None
    assert mark.args == (SHARING_SECONDS_MAX,)


@pytest.mark.parametrize("target", ["test-all", "faults", "soak"])
def test_the_larger_commands_look_into_every_folder(target: str) -> None:
    """A mark alone says whether they run a test, wherever it is."""
    assert "tests/" not in pytest_line(target)


def test_every_test_is_run_by_some_command() -> None:
    """Whatever marks it has."""
    expressions = [re.search('-m "?([^"$]+)', pytest_line(target)) for target in ("test-all", "faults", "soak")]
    marks = ("long", "faults", "long_faults", "soak")

    for has in product([False, True], repeat=len(marks)):
        marked = dict(zip(marks, has, strict=True))
        chosen = [eval(expression[1], {}, marked) for expression in expressions if expression]

        assert any(chosen), f"no command runs a test that has these marks: {marked}"


def pytest_line(target: str) -> str:
    """Return the line of a target that runs pytest."""
    recipe = MAKEFILE.read_text().partition(f"\n{target}: ")[2].partition("\n\n")[0]
    (line,) = (line for line in recipe.splitlines() if "/pytest" in line)
    return line
