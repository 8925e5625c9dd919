"""A query stops between two batches, and is started again where that may help; Spark itself is not needed for that."""

from __future__ import annotations

import os
import signal
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.pipeline.errors import PipelineError, reason_of
from ottla.pipeline.settings import ArchiveSettings
from ottla.pipeline.streaming import BatchGate, Query, run_query

ROWS = cast(Any, None)
SPARK = cast(Any, SimpleNamespace(sparkContext=SimpleNamespace(setLogLevel=lambda level: None)))


class FakeRun:
    """Stands for a query that Spark runs: it fails with a text, or runs until it is stopped."""

    def __init__(self, failure: str | None) -> None:
        self.isActive = failure is None
        self.status = {"isTriggerActive": False}
        self._failure = failure
        if failure is None:
            os.kill(os.getpid(), signal.SIGTERM)

    def exception(self) -> Exception | None:
        """Return why it failed."""
        return Exception(self._failure) if self._failure else None

    def stop(self) -> None:
        """Stop it."""
        self.isActive = False


class FakeQuery(Query):
    """A query whose runs are scripted; each of them has some batches before it ends."""

    def start(self, gate: BatchGate, settings: Any) -> Any:
        """Run the next part of the script."""
        failure, batches = script.pop(0)
        for batch_id in range(batches):
            gate(ROWS, batch_id)
        return FakeRun(failure)


script: list[tuple[str | None, int]] = []


def run(monkeypatch: pytest.MonkeyPatch, *parts: tuple[str | None, int], attempts: int = 2) -> int:
    """Run a scripted query without pauses, and return how often its handler was opened."""
    monkeypatch.setattr("ottla.pipeline.streaming._PAUSE_S_MAX", 0.0)
    script[:] = parts
    opened = []

    def open_handler() -> Any:
        opened.append(1)
        return lambda rows, batch_id: None

    settings = ArchiveSettings(topics=("t",), archive="/a", attempts=attempts)
    run_query(SPARK, FakeQuery("archive", ROWS, open_handler, "/c"), settings)
    return len(opened)


def test_a_query_that_fails_is_started_again_until_it_is_told_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a failed run left is settled by a handler opened anew; a signal is no failure."""
    assert run(monkeypatch, ("KafkaError: away", 0), (None, 0)) == 2


def test_failures_count_only_without_a_batch_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that gets on may fail as often as it likes."""
    away = ("KafkaError: away", 1)

    assert run(monkeypatch, away, away, away, away, (None, 0)) == 5


def test_a_commit_of_a_sink_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark gives it the name of an error in the query itself."""
    failure = "AnalysisException: [PYTHON_DATA_SOURCE_ERROR] Failed to commit: NoBrokersAvailable: nobody answers"

    assert run(monkeypatch, (failure, 0), (None, 0)) == 2


@pytest.mark.parametrize(
    "failures",
    [
        ["KafkaError: away"] * 2,
        ["DataLossError: gone"],
        ["ottla.pipeline.errors.ArchiveError: torn"],
        ["AnalysisException: no such column"],
        ["AnalysisException: PYTHON_DATA_SOURCE_ERROR: SourceOptionError: shards"],
    ],
)
def test_a_query_that_fails_for_good_ends_the_job(monkeypatch: pytest.MonkeyPatch, failures: list[str]) -> None:
    """After some attempts, or at once where another would end in the same way; the error says why."""
    with pytest.raises(PipelineError, match=failures[-1]):
        run(monkeypatch, *((failure, 0) for failure in failures))

    assert not script


def test_a_batch_that_comes_to_a_closed_gate_is_not_done() -> None:
    """It waits, so that Spark does not take it for done, and fails when the query is stopped."""
    done: list[int] = []
    gate = BatchGate(lambda rows, batch_id: done.append(batch_id))
    gate(ROWS, 0)
    gate.close()
    failures: list[BaseException] = []

    def bring() -> None:
        try:
            gate(ROWS, 1)
        except PipelineError as error:
            failures.append(error)

    thread = threading.Thread(target=bring)
    thread.start()
    assert gate.waiting.wait(60)
    gate.release()
    thread.join(60)

    assert (done, gate.batches, len(failures)) == ([0], 1, 1)


def test_the_reason_of_a_failure_is_one_line() -> None:
    """The last line that names an error, out of the traces of two languages; else the first line."""
    trace = """[STREAM_FAILED] Query [id = 0] terminated with exception: Python error
Traceback (most recent call last):
  File "x.py", line 1, in read
ottla.client.errors.NoBrokersAvailable: nobody answers
\tat org.apache.spark.Api.call(Api.scala:1)
"""

    assert reason_of(Exception(trace)) == "ottla.client.errors.NoBrokersAvailable: nobody answers"
    assert reason_of(Exception("first\nsecond")) == "first"
    assert reason_of(KeyError()) == "KeyError"
