"""Requests that are nearly right, by the thousands: each ends once, and nothing goes wrong that was not foreseen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs
from tests.faults.mutation import mutated_frames
from tests.hostile.attacked import AttackedBroker, attacked_broker

from ottla.broker.handlers.table import HANDLERS

# Of a processor, for one small request; a generous bound on hangs.
SECONDS_MAX = 1.0


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedBroker]:
    """A broker on which nobody has a right."""
    with attacked_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_mutated_requests_end_and_nothing_fails(attacked: AttackedBroker, count: int) -> None:
    """Recorded ones, and ones of every API and version as declared; with an answer or a closed connection."""
    with capture_logs() as lines:
        for number, frame in enumerate(mutated_frames(count, count, set(HANDLERS), declared=True)):
            cost = attacked.take(frame[4:])
            assert cost.seconds < SECONDS_MAX, f"frame {number}: {frame[:200]!r}"
            lines[:] = [line for line in lines if line["log_level"] == "error"]
            assert not lines, f"frame {number}: {frame[:200]!r}"
