"""What the checker makes of histories that are small enough to follow by eye."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.checker.anomaly import Rule
from tests.faults.checker.check import Report, Verdict, check, main
from tests.faults.checker.fake_cluster import Bug, FakeCluster
from tests.faults.checker.history import (
    Assign,
    Drain,
    Event,
    Fail,
    FaultStart,
    FaultStop,
    HistoryWriter,
    Info,
    Invoke,
    Ok,
    Poll,
    PolledRecord,
    PositionLost,
    TailLost,
    in_order,
    read_history,
)

SECOND = 1_000_000_000


def send(time_s: float, op: int, partition: str = "t-0", acks: int = -1) -> Invoke:
    """A send of worker p."""
    return Invoke(time_ns=at(time_s), worker="p", op=op, partition=partition, value=f"p-{op}", acks=acks)


def ok(time_s: float, op: int, offset: int = -1) -> Ok:
    """Its acknowledgement."""
    return Ok(time_ns=at(time_s), worker="p", op=op, offset=offset)


def read(time_s: float, *records: tuple[int, str], worker: str = "c") -> Poll:
    """A poll of partition t-0."""
    polled = tuple(PolledRecord("t-0", offset, value) for offset, value in records)
    return Poll(time_ns=at(time_s), worker=worker, records=polled)


def drained(time_s: float, *records: tuple[int, str], is_complete: bool = True) -> list[Event]:
    """Everything read in the end."""
    return [
        Assign(time_ns=at(time_s), worker="drain", partitions=("t-0",)),
        read(time_s, *records, worker="drain"),
        Drain(time_ns=at(time_s), worker="drain", is_complete=is_complete),
    ]


def at(time_s: float) -> int:
    """A time in nanoseconds."""
    return int(time_s * SECOND)


def judge(*events: Event, is_idempotent: bool = True) -> Report:
    """Check some events."""
    return check(in_order(events), is_idempotent=is_idempotent)


def test_a_send_in_doubt_may_be_there_or_not() -> None:
    """Timed out, or never answered: both ways are right."""
    sends: list[Event] = [send(0, 0), ok(1, 0, 0), send(2, 1), ok(3, 1, 1), send(4, 2), ok(5, 2, 2), send(6, 3)]
    doubt = Info(time_ns=at(7), worker="p", op=3, error="timed out")
    there = [(0, "p-0"), (1, "p-1"), (2, "p-2")]

    assert judge(*sends, doubt, *drained(9, *there)).verdict is Verdict.VALID
    assert judge(*sends, doubt, *drained(9, *there, (3, "p-3"))).verdict is Verdict.VALID
    assert judge(*sends, *drained(9, *there, (3, "p-3"))).verdict is Verdict.VALID


def test_an_ack_without_an_offset_is_a_promise_too() -> None:
    """A record whose offset the producer was not told must be there in the end."""
    report = judge(send(0, 0), ok(1, 0, 0), send(2, 1), ok(3, 1), *drained(4, (0, "p-0")))

    assert report.broken_rules == {Rule.LOST_ACKED_WRITE}


def test_only_acks_of_all_replicas_promise_anything() -> None:
    """With acks=1, a record may go with its leader."""
    report = judge(send(0, 0), ok(1, 0, 0), send(2, 1, acks=1), ok(3, 1, 1), *drained(4, (0, "p-0")))

    assert report.verdict is Verdict.VALID, report


def test_a_retry_may_duplicate_without_idempotence() -> None:
    """The same history is judged by what was promised."""
    history = [send(0, 0), ok(1, 0, 1), *drained(2, (0, "p-0"), (1, "p-0"))]

    assert judge(*history).broken_rules == {Rule.DUPLICATE}
    assert judge(*history, is_idempotent=False).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("producers", "rules"),
    [
        (((7, 0), (7, 1)), set()),
        (((7, 0), (8, 0)), set()),
        (((7, 0), (7, 0)), {Rule.DUPLICATE}),
        (((7, 0), (-1, -1)), {Rule.DUPLICATE}),
    ],
    ids=["in two epochs", "by two producers", "in one epoch", "nobody saw how"],
)
def test_a_client_that_sends_a_value_again_in_a_new_epoch_gets_it_twice(
    producers: tuple[tuple[int, int], tuple[int, int]], rules: set[Rule]
) -> None:
    """A broker cannot know that it is the same value. It promises to store one sequence of one epoch once."""
    records = tuple(PolledRecord("t-0", offset, "p-0", 0, *producer) for offset, producer in enumerate(producers))
    seen = Poll(time_ns=at(2), worker="o", records=records)
    report = judge(send(0, 0), ok(1, 0, 1), seen, *drained(3, (0, "p-0"), (1, "p-0")))

    assert report.broken_rules == rules, report
    assert report.resent_count == (not rules)


@pytest.mark.parametrize(("second_invoked", "rules"), [(0.5, set()), (1.5, {Rule.REORDERING, Rule.REAL_TIME_OFFSET})])
def test_order_without_idempotence_holds_for_sends_one_after_the_other(second_invoked: float, rules: set[Rule]) -> None:
    """Two under way at the same time may change places; one that was over when the other began may not."""
    report = judge(
        send(0, 0), send(second_invoked, 1), ok(1, 0, 1), ok(2, 1, 0), *drained(3, (0, "p-1"), (1, "p-0")),
        is_idempotent=False,
    )  # fmt: skip

    assert report.broken_rules == rules, report


def test_a_new_assignment_may_start_anywhere() -> None:
    """A consumer that was made anew reads again from the beginning, or from further on."""
    records = [(offset, f"p-{offset}") for offset in range(4)]
    sends = [event for op in range(4) for event in (send(op, op), ok(op + 0.5, op, op))]

    again: list[Event] = [Assign(time_ns=at(10), worker="c", partitions=("t-0",)), read(11, records[0], records[1])]
    anew: list[Event] = [Assign(time_ns=at(12), worker="c", partitions=("t-0",)), read(13, records[3])]
    report = judge(*sends, read(9, records[0], records[1]), *again, *anew, *drained(20, *records))

    assert report.verdict is Verdict.VALID, report


def test_after_a_loss_of_power_only_what_was_flushed_is_promised() -> None:
    """The tail may go, and with it what consumers read there; its offsets are used again, by whoever comes first."""
    acked = [event for op in range(4) for event in (send(op, op), ok(op + 0.5, op, op))]
    seen = read(5, *((offset, f"p-{offset}") for offset in range(4)))
    loss = TailLost(time_ns=at(6), partition="t-0", offset=2)
    told = PositionLost(time_ns=at(7), worker="c", partition="t-0", offset=4)
    later: list[Event] = [send(8, 4), ok(9, 4, 2), read(10, (2, "p-4"))]
    kept = [(0, "p-0"), (1, "p-1"), (2, "p-4")]

    assert judge(*acked, seen, loss, told, *later, *drained(20, *kept)).verdict is Verdict.VALID
    assert judge(*acked, seen, told, *later, *drained(20, *kept)).broken_rules >= {
        Rule.LOST_ACKED_WRITE,
        Rule.LOST_READ,
        Rule.LOST_POSITION,
        Rule.INCONSISTENT_OFFSET,
    }


def test_a_loss_of_power_excuses_nothing_that_was_flushed() -> None:
    """A record below the end that was on disk is promised; so is everything that comes after the loss."""
    acked = [event for op in range(3) for event in (send(op, op), ok(op + 0.5, op, op))]
    loss = TailLost(time_ns=at(6), partition="t-0", offset=2)
    later: list[Event] = [send(8, 3), ok(9, 3, 2)]

    too_much = judge(*acked, loss, *later, *drained(20, (0, "p-0"), (1, "p-3")))
    after_it = judge(*acked, loss, *later, *drained(20, (0, "p-0"), (1, "p-1")))

    assert Rule.LOST_ACKED_WRITE in too_much.broken_rules
    assert after_it.broken_rules == {Rule.LOST_ACKED_WRITE}


def test_a_run_that_shows_too_little_is_unknown() -> None:
    """No drain, no proof of a fault, too few acks: nothing is wrong, and nothing is shown."""
    acked: list[Event] = [send(0, 0), ok(1, 0, 0)]
    unproved: list[Event] = [
        FaultStart(time_ns=0, name="kill", target="1"),
        FaultStop(time_ns=at(1), name="kill", proof=""),
    ]
    refused = Fail(time_ns=at(1), worker="p", op=1, error="NOT_ENOUGH_REPLICAS")

    assert judge(*acked).verdict is Verdict.UNKNOWN
    assert judge(*acked, *drained(2, (0, "p-0"), is_complete=False)).verdict is Verdict.UNKNOWN
    assert judge(*acked, *unproved, *drained(2, (0, "p-0"))).verdict is Verdict.UNKNOWN
    assert judge(*acked, send(0, 1), refused, *drained(2, (0, "p-0"))).verdict is Verdict.UNKNOWN
    assert judge(*acked, ok(2, 7), *drained(2, (0, "p-0"))).verdict is Verdict.UNKNOWN


def test_an_acked_record_that_an_unfinished_drain_did_not_reach_is_lost() -> None:
    """Whoever gives up reading has not found it."""
    report = judge(send(0, 0), ok(1, 0, 0), *drained(2, is_complete=False))

    assert report.verdict is Verdict.INVALID
    assert report.stuck == ["the drain did not end"]


def test_the_longest_gap_between_acks_is_told_for_each_fault() -> None:
    """The gap that the fault touches counts, for all partitions together and for the worst alone."""
    fault: list[Event] = [
        FaultStart(time_ns=at(10), name="kill", target="broker 1", ack_gap_max_s=2.5),
        FaultStop(time_ns=at(12), name="kill", proof="gone"),
    ]
    sends = [
        event
        for op, (partition, time_s) in enumerate([("t-0", 1), ("t-0", 9), ("t-1", 9.5), ("t-1", 11.5), ("t-0", 12.25)])
        for event in (send(time_s - 0.25, op, partition), ok(time_s, op, op))
    ]
    report = judge(*fault, *sends)

    (measured,) = report.faults
    assert measured.gap_s == 2
    assert (measured.partition_gap_s, measured.worst_partition) == (3.25, "t-0")
    assert measured.is_stuck
    assert "longest gap between acks 2.00 s" in str(report)


def test_histories_survive_the_way_through_files(tmp_path: Path) -> None:
    """Several writers, and one that was killed in the middle of a line."""
    history = FakeCluster().run()
    writers = [HistoryWriter(tmp_path / name) for name in ("a", "b")]
    for number, event in enumerate(history.events):
        writers[number % 2].write(event)
    for writer in writers:
        writer.close()
    with (tmp_path / "b").open("ab") as torn:
        torn.write(b'{"event":"ok","wor')

    assert read_history(tmp_path / "a", tmp_path / "b") == history


def test_a_line_that_cannot_be_read_leaves_the_run_unknown(tmp_path: Path) -> None:
    """Only the last line may be torn."""
    path = tmp_path / "history"
    path.write_bytes(b'{"event":"ok","wor\n')

    assert read_history(path).unreadable_lines == 1
    assert check(read_history(path)).verdict is Verdict.UNKNOWN


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report has the count, and examples with what surrounds them."""
    writer = HistoryWriter(tmp_path / "history")
    for event in FakeCluster(Bug.DROP_ACKED_RECORD).run().events:
        writer.write(event)
    writer.close()

    assert main([str(tmp_path / "history")]) == 1
    said = capsys.readouterr().out
    assert "verdict: invalid" in said
    assert "broken: lost acked write, 1 times" in said
    assert "around it: " in said
