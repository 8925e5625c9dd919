"""Processes of tests: when they count as started, and how they end."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.kit.guarded_process import GuardedProcess
from tests.kit.waiting import DEADLINE_S

LATE_S = 0.05


def test_a_process_is_up_when_it_says_so(tmp_path: Path) -> None:
    """Its output is in the file."""
    log = tmp_path / "log"
    process = GuardedProcess(["sh", "-c", "echo ready; exec sleep 600"], log)
    try:
        assert process.comes_up(lambda: "ready" in log.read_text(), DEADLINE_S)
        assert process.poll() is None
    finally:
        assert process.end(signal.SIGTERM) == 128 + signal.SIGTERM


def test_a_process_that_ends_first_is_not_up(tmp_path: Path) -> None:
    """And nobody waits for the deadline."""
    process = GuardedProcess(["sh", "-c", "exit 3"], tmp_path / "log")

    assert not process.comes_up(lambda: False, DEADLINE_S)
    assert process.end(signal.SIGKILL) == 3


def test_a_process_that_is_late_is_not_up(tmp_path: Path) -> None:
    """It runs on, for its owner to end."""
    process = GuardedProcess(["sleep", "600"], tmp_path / "log")
    try:
        assert not process.comes_up(lambda: False, LATE_S)
        assert process.poll() is None
    finally:
        process.end(signal.SIGKILL)
