"""What the checker makes of transactions in histories that are small enough to follow by eye."""

from __future__ import annotations

from typing import Literal

import pytest
from tests.faults.checker.anomaly import Rule
from tests.faults.checker.check import Report, Verdict, check
from tests.faults.checker.history import (
    NO_TRANSACTION,
    Assign,
    BeginTransaction,
    Commit,
    Drain,
    EndTransaction,
    Event,
    Info,
    Invoke,
    Ok,
    Poll,
    PolledMarker,
    PolledRecord,
    StageOffsets,
    TailLost,
    TransactionEnded,
    Watermark,
    in_order,
)
from tests.faults.checker.transactions import Ending

SECOND = 1_000_000_000
Record = tuple[str, int, str]


def at(time_s: float) -> int:
    """A time in nanoseconds."""
    return int(time_s * SECOND)


def begin(time_s: float, number: int, worker: str = "w") -> BeginTransaction:
    """A transaction begins."""
    return BeginTransaction(time_ns=at(time_s), worker=worker, transaction=number)


def sent(
    time_s: float,
    number: int,
    record: Record,
    op: int,
    worker: str = "w",
    source: tuple[str, int] | None = None,
) -> list[Event]:
    """A send in a transaction, acknowledged half a second later."""
    partition, offset, value = record
    return [
        Invoke(
            time_ns=at(time_s),
            worker=worker,
            op=op,
            partition=partition,
            value=value,
            transaction=number,
            source=source,
        ),
        Ok(time_ns=at(time_s + 0.5), worker=worker, op=op, offset=offset),
    ]


def ended(
    time_s: float, number: int, outcome: Literal["ok", "fail", "info"] = "ok", worker: str = "w", *, commit: bool = True
) -> list[Event]:
    """A transaction is asked to end, and half a second later its worker hears something."""
    return [
        EndTransaction(time_ns=at(time_s), worker=worker, transaction=number, is_commit=commit),
        TransactionEnded(time_ns=at(time_s + 0.5), worker=worker, transaction=number, outcome=outcome),
    ]


def polled(
    time_s: float, *records: Record, worker: str = "c", number: int = NO_TRANSACTION, committed: bool = True
) -> Poll:
    """What a reader got, with read_committed unless the test says otherwise."""
    found = tuple(PolledRecord(*record) for record in records)
    return Poll(time_ns=at(time_s), worker=worker, records=found, is_committed=committed, transaction=number)


def markers(*of: tuple[str, int], commit: bool = True) -> tuple[PolledMarker, ...]:
    """Control records."""
    return tuple(PolledMarker(partition, offset, 7, 0, commit) for partition, offset in of)


def drained(
    time_s: float, everything: list[Record], committed: list[Record], control: tuple[PolledMarker, ...] = ()
) -> list[Event]:
    """All that is there in the end, for readers of both isolation levels."""
    partitions = tuple(sorted({partition for partition, _, _ in everything}))
    raw = tuple(PolledRecord(*record) for record in everything)
    return [
        Assign(time_ns=at(time_s), worker="drain", partitions=partitions),
        Poll(time_ns=at(time_s), worker="drain", records=raw, markers=control),
        Drain(time_ns=at(time_s), worker="drain", is_complete=True),
        Assign(time_ns=at(time_s + 1), worker="drain-committed", partitions=partitions),
        polled(time_s + 1, *committed, worker="drain-committed"),
        Drain(time_ns=at(time_s + 1), worker="drain-committed", is_complete=True, is_committed=True),
    ]


def stable(time_s: float, offset: int, high_watermark: int, broker: int = 1, epoch: int = 1) -> Poll:
    """An answer to somebody who only wants to know how far one may read."""
    shown = Watermark("t-0", broker, epoch, high_watermark, offset)
    return Poll(time_ns=at(time_s), worker="o", records=(), watermarks=(shown,), is_committed=True)


def told(time_s: float, offset: int, partition: str = "in-0") -> Commit:
    """The coordinator tells where a group is."""
    return Commit(
        time_ns=at(time_s), worker="broker", group="g", partition=partition, offset=offset, invoked_ns=at(time_s) - 1
    )


def judge(*events: Event, are_answers_exact: bool = True) -> Report:
    """Check some events."""
    return check(in_order(events), are_answers_exact=are_answers_exact)


# Two partitions, one value in each, and their markers behind them.
PAIR: list[Record] = [("t-0", 0, "w-0"), ("t-1", 0, "w-1")]
PAIR_SENT: list[Event] = [begin(0, 0), *sent(1, 0, PAIR[0], 0), *sent(2, 0, PAIR[1], 1)]
PAIR_MARKERS = markers(("t-0", 1), ("t-1", 1))
# A transaction that is committed for certain, so that a run shows something.
OTHER: Record = ("t-2", 0, "v-0")
OTHER_SENT: list[Event] = [begin(0, 0, "v"), *sent(0, 0, OTHER, 0, "v"), *ended(1, 0, worker="v")]
OTHER_MARKER = markers(("t-2", 1))


@pytest.mark.parametrize("outcome", ["info", None])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_commit_in_doubt_may_have_happened_or_not(outcome: Literal["info"] | None, is_there: bool) -> None:
    """Both ways are right, if nobody answered, and if nobody lived to hear the answer."""
    end = ended(3, 0, outcome or "info")[: 1 if outcome is None else 2]
    seen = PAIR if is_there else []
    others = [
        event
        for number in (1, 2)
        for event in (begin(5, number), *sent(5, number, ("t-2", number, f"w-{number + 1}"), number + 1))
    ]
    more: list[Record] = [("t-2", 1, "w-2"), ("t-2", 2, "w-3")]
    report = judge(
        *PAIR_SENT,
        *end,
        *OTHER_SENT,
        *others,
        *ended(6, 1),
        *ended(6, 2),
        *drained(9, [*PAIR, OTHER, *more], [*seen, OTHER, *more], PAIR_MARKERS),
    )

    assert report.verdict is Verdict.VALID, report
    assert report.endings[Ending.UNKNOWN] == 1


@pytest.mark.parametrize("outcome", ["ok", "info"])
def test_half_a_transaction_is_torn(outcome: Literal["ok", "info"]) -> None:
    """All or nothing is what a commit in doubt promises, too."""
    report = judge(
        *PAIR_SENT, *ended(3, 0, outcome), *OTHER_SENT, *drained(9, [*PAIR, OTHER], [PAIR[0], OTHER], PAIR_MARKERS)
    )

    assert report.broken_rules == {Rule.TORN_TRANSACTION}, report
    assert "there in the end ['w-0 in t-0'], missing ['w-1 in t-1']" in str(report)


def test_a_transaction_that_nobody_asked_to_commit_is_never_read() -> None:
    """Aborted, failed or left behind: a reader with read_committed that sees it is wrong, and no other reader."""
    aborts = [ended(3, 0, commit=False), ended(3, 0, "info", commit=False), ended(3, 0, "fail"), []]
    control = (*markers(("t-0", 1), ("t-1", 1), commit=False), *OTHER_MARKER)
    end = drained(9, [*PAIR, OTHER], [OTHER], control)
    # What comes later cannot make up for it.
    seen = polled(4, PAIR[0])

    for abort in aborts:
        asked = [*PAIR_SENT, *abort, *OTHER_SENT]
        assert not judge(*asked, polled(4, PAIR[0], committed=False), *end).anomalies
        assert judge(*asked, seen, *end).broken_rules == {Rule.ABORTED_READ, Rule.LOST_READ}


def test_a_worker_that_was_replaced_commits_nothing() -> None:
    """It gave the transaction up first; what its request to commit says later does not count."""
    zombie: list[Event] = [
        EndTransaction(time_ns=at(3), worker="w", transaction=0, is_commit=False),
        EndTransaction(time_ns=at(4), worker="w", transaction=0, is_commit=True),
        TransactionEnded(time_ns=at(5), worker="w", transaction=0, outcome="ok"),
    ]
    report = judge(*PAIR_SENT, *zombie, *OTHER_SENT, *drained(9, [*PAIR, OTHER], [*PAIR, OTHER], PAIR_MARKERS))

    assert report.broken_rules == {Rule.ABORTED_READ}


def test_partitions_may_show_a_transaction_one_after_the_other() -> None:
    """Each has its marker at a time of its own; a reader may see the one before the other."""
    report = judge(
        *PAIR_SENT,
        *ended(3, 0),
        polled(4, PAIR[1]),
        polled(5, PAIR[0]),
        *drained(9, PAIR, PAIR, PAIR_MARKERS),
    )

    assert report.verdict is Verdict.VALID, report


def test_transactions_may_alternate_in_a_partition() -> None:
    """Writes are not isolated from each other (G0), and the one that began first need not be committed first."""
    everything: list[Record] = [("t-0", 0, "w-0"), ("t-0", 1, "v-0"), ("t-0", 2, "w-1"), ("t-0", 3, "v-1")]
    report = judge(
        begin(0, 0),
        begin(0, 0, "v"),
        *sent(1, 0, everything[0], 0),
        *sent(2, 0, everything[1], 0, "v"),
        *sent(3, 0, everything[2], 1),
        *sent(4, 0, everything[3], 1, "v"),
        *ended(5, 0, worker="v"),
        *ended(6, 0),
        *drained(9, everything, everything, markers(("t-0", 4), ("t-0", 5))),
    )

    assert report.verdict is Verdict.VALID, report


def test_a_value_is_not_read_before_its_commit_was_asked_for() -> None:
    """Not by others, and not by its own worker; with read_uncommitted it is."""
    end = [*ended(5, 0), *drained(9, PAIR, PAIR, PAIR_MARKERS)]

    assert judge(*PAIR_SENT, polled(4, PAIR[0]), *end).broken_rules == {Rule.PRECOMMITTED_READ}
    assert judge(*PAIR_SENT, polled(4, PAIR[0], committed=False), *end).verdict is Verdict.VALID
    own = judge(*PAIR_SENT, polled(4, PAIR[0], worker="w", number=0), *end)
    assert own.broken_rules == {Rule.PRECOMMITTED_READ}
    assert "its own w read w-0 at 0" in str(own)


def test_a_circle_of_reads_is_told_in_full() -> None:
    """Three transactions, each of which has read from the next."""
    everything: list[Record] = [("t-0", offset, f"{worker}-0") for offset, worker in enumerate("abc")]
    events: list[Event] = []
    for turn, worker in enumerate("abc"):
        events += [begin(turn, 0, worker), *sent(turn + 0.1, 0, everything[turn], 0, worker)]
    for turn, worker in enumerate("abc"):
        following = everything[(turn + 1) % 3]
        events += [
            Assign(time_ns=at(5 + turn), worker=worker, partitions=("t-0",)),
            polled(6 + turn, following, worker=worker, number=0),
            *ended(10 + turn, 0, worker=worker),
        ]
    control = markers(("t-0", 3), ("t-0", 4), ("t-0", 5))
    report = judge(*events, *drained(20, everything, everything, control))

    assert report.broken_rules == {Rule.CIRCULAR_READS, Rule.PRECOMMITTED_READ}
    (circle,) = [anomaly for anomaly in report.anomalies if anomaly.rule is Rule.CIRCULAR_READS]
    assert circle.detail.count(" read ") == 3


def test_reading_what_was_committed_before_is_no_circle() -> None:
    """A chain of transactions, in which each reads from the one before."""
    everything: list[Record] = [("t-0", 0, "w-0"), ("t-0", 2, "w-1"), ("t-0", 4, "w-2")]
    events: list[Event] = []
    for number, record in enumerate(everything):
        start = 10 * number
        before = everything[number - 1 : number]
        events += [begin(start, number), *sent(start + 1, number, record, number)]
        events += [polled(start + 3, *before, worker="w", number=number), *ended(start + 4, number)]
    control = markers(("t-0", 1), ("t-0", 3), ("t-0", 5))
    report = judge(*events, *drained(50, everything, everything, control))

    assert report.verdict is Verdict.VALID, report


INPUT: list[Record] = [("in-0", 0, "p-0"), ("in-0", 1, "p-1")]
INPUT_SENT: list[Event] = [
    event
    for partition, offset, value in INPUT
    for event in (
        Invoke(time_ns=at(0), worker="p", op=offset, partition=partition, value=value),
        Ok(time_ns=at(0.5), worker="p", op=offset, offset=offset),
    )
]
OUTPUT: list[Record] = [("out-0", 0, "w-0"), ("out-0", 1, "w-1")]
TRANSFORMED: list[Event] = [
    polled(1, *INPUT, worker="w", number=0),
    begin(2, 0),
    *sent(3, 0, OUTPUT[0], 0, source=("in-0", 0)),
    *sent(4, 0, OUTPUT[1], 1, source=("in-0", 1)),
    StageOffsets(time_ns=at(5), worker="w", transaction=0, group="g", offsets=(("in-0", 2),)),
]


@pytest.mark.parametrize(
    ("position", "seen", "rules"),
    [
        (2, OUTPUT, set()),
        (0, [], set()),
        (2, [], {Rule.OFFSET_WITHOUT_OUTPUT}),
        (0, OUTPUT, {Rule.OUTPUT_WITHOUT_OFFSET}),
        (1, OUTPUT, {Rule.OUTPUT_WITHOUT_OFFSET}),
    ],
)
def test_inputs_and_outputs_agree(position: int, seen: list[Record], rules: set[Rule]) -> None:
    """A commit in doubt may have happened; then the group has moved on, and otherwise it has not."""
    report = judge(
        *INPUT_SENT,
        *TRANSFORMED,
        *ended(6, 0, "info"),
        *OTHER_SENT,
        told(8, position),
        *drained(9, [*INPUT, *OUTPUT, OTHER], [*INPUT, *seen, OTHER]),
    )

    assert report.broken_rules == rules, report


def test_the_position_of_a_commit_stays() -> None:
    """After the answer to a commit, nobody is told less; and one must ask after all transactions to know the end."""
    end = [*ended(6, 0), *drained(9, [*INPUT, *OUTPUT], [*INPUT, *OUTPUT])]

    assert judge(*INPUT_SENT, *TRANSFORMED, *end, told(8, 2)).verdict is Verdict.VALID
    assert judge(*INPUT_SENT, *TRANSFORMED, *end, told(5.5, 0)).verdict is Verdict.UNKNOWN
    less = judge(*INPUT_SENT, *TRANSFORMED, *end, told(7, 1), told(8, 2))
    assert less.broken_rules == {Rule.COMMITTED_BACK}


def test_an_input_with_two_outputs_was_taken_twice() -> None:
    """Also where the group's position is right in the end."""
    again: list[Record] = [("out-0", 3, "u-0")]
    events = [
        *INPUT_SENT,
        *TRANSFORMED,
        *ended(6, 0),
        Assign(time_ns=at(4), worker="u", partitions=("in-0",)),
        polled(5, INPUT[1], worker="u", number=0),
        begin(7, 0, "u"),
        *sent(7.1, 0, again[0], 0, "u", source=("in-0", 1)),
        StageOffsets(time_ns=at(8), worker="u", transaction=0, group="g", offsets=(("in-0", 2),)),
        *ended(8.1, 0, worker="u"),
        told(9, 2),
        *drained(10, [*INPUT, *OUTPUT, *again], [*INPUT, *OUTPUT, *again], markers(("out-0", 2))),
    ]
    report = judge(*events)

    assert report.broken_rules == {Rule.TAKEN_TWICE}, report
    assert "from 1: w-1 by transaction 0 of w (committed); u-0 by transaction 0 of u (committed)" in str(report)


@pytest.mark.parametrize(
    ("later", "rules"),
    [
        # The marker of a long transaction is above the high watermark of the new leader.
        (stable(2, 3, 25, broker=2, epoch=2), set()),
        # It has as high a watermark, so it has the same records below it.
        (stable(2, 3, 30, broker=2, epoch=2), {Rule.STABLE_BACK}),
        # One leader never shows less.
        (stable(2, 19, 31), {Rule.STABLE_BACK}),
        (stable(2, 20, 31), set()),
    ],
)
def test_a_new_leader_may_show_a_lower_stable_offset_while_its_high_watermark_is_lower(
    later: Poll, rules: set[Rule]
) -> None:
    """What is stable depends on the records below the high watermark, and on nothing else."""
    sends = [*OTHER_SENT, *drained(9, [OTHER], [OTHER])]

    assert judge(stable(1, 20, 30), later, *sends, stable(12, 40, 40)).broken_rules == rules


def test_answers_that_are_not_exact_are_compared_only_with_those_of_the_same_leader() -> None:
    """Apache Kafka reads the one offset a moment after the other."""
    sends = [*OTHER_SENT, *drained(9, [OTHER], [OTHER])]
    elsewhere = [stable(1, 20, 30), stable(2, 3, 30, broker=2, epoch=2), *sends, stable(12, 40, 40)]
    same = [stable(1, 20, 30), stable(2, 19, 30), *sends, stable(12, 40, 40)]

    assert not judge(*elsewhere, are_answers_exact=False).anomalies
    assert judge(*same, are_answers_exact=False).broken_rules == {Rule.STABLE_BACK}


def test_answers_that_were_under_way_together_may_arrive_in_any_order() -> None:
    """Only one that was asked for after another had come must show as much."""
    late = Poll(
        time_ns=at(3),
        invoked_ns=at(1),
        worker="other",
        records=(),
        watermarks=(Watermark("t-0", 1, 1, 25, 15),),
        is_committed=True,
    )
    sends = [*OTHER_SENT, *drained(9, [OTHER], [OTHER])]

    assert not judge(stable(2, 20, 30), late, *sends, stable(12, 40, 40)).anomalies


def test_a_stable_offset_below_the_end_is_a_transaction_that_hangs() -> None:
    """After everything has ended, readers with read_committed get to the high watermark."""
    sends = [*OTHER_SENT, *drained(9, [OTHER], [OTHER])]

    assert judge(*sends, stable(12, 39, 40)).broken_rules == {Rule.STABLE_BEHIND}
    assert not judge(stable(1, 39, 40), *sends, stable(12, 41, 41)).anomalies


def test_a_value_in_a_transaction_is_never_stored_twice() -> None:
    """Outside of transactions, librdkafka may send it again in a new epoch. Inside, it aborts."""
    records = tuple(PolledRecord("t-0", offset, "w-0", 0, 7, offset) for offset in range(2))
    seen = Poll(time_ns=at(4), worker="o", records=records)
    twice: list[Record] = [("t-0", 0, "w-0"), ("t-0", 1, "w-0")]
    report = judge(begin(0, 0), *sent(1, 0, twice[0], 0), *ended(2, 0), seen, *drained(9, twice, twice))

    assert report.broken_rules == {Rule.DUPLICATE}
    assert report.resent_count == 0


def test_a_loss_of_power_excuses_the_transactions_before_it() -> None:
    """Their records, their markers or the decision may be gone; what begins later is held to the rules."""
    loss = TailLost(time_ns=at(5), partition="t-0", offset=0)
    later: list[Record] = [("t-0", 0, "w-2"), ("t-1", 2, "w-3")]
    after: list[Event] = [begin(6, 1), *sent(6, 1, later[0], 2), *sent(7, 1, later[1], 3), *ended(8, 1)]
    control = markers(("t-0", 1), ("t-1", 1), ("t-1", 3))
    events = [*PAIR_SENT, *ended(3, 0), loss, *after]

    assert judge(*events, *drained(9, [PAIR[1], *later], later, control)).verdict is Verdict.VALID
    torn = judge(*events, *drained(9, [PAIR[1], *later], later[:1], control))
    assert torn.broken_rules == {Rule.TORN_TRANSACTION}


def test_a_run_of_transactions_that_shows_too_little_is_unknown() -> None:
    """Nobody read with read_committed in the end, or hardly a commit was answered."""
    end = drained(9, PAIR, PAIR, PAIR_MARKERS)
    only_raw = [event for event in end if not (isinstance(event, Drain) and event.is_committed)]

    assert judge(*PAIR_SENT, *ended(3, 0), *end).verdict is Verdict.VALID
    assert judge(*PAIR_SENT, *ended(3, 0), *only_raw).verdict is Verdict.UNKNOWN
    assert judge(*PAIR_SENT, *ended(3, 0, "info"), *end).verdict is Verdict.UNKNOWN


def test_a_history_that_contradicts_itself_is_unknown() -> None:
    """Two answers, or a transaction that writes before it began."""
    end = [*ended(3, 0), *drained(9, PAIR, PAIR, PAIR_MARKERS)]
    again = TransactionEnded(time_ns=at(5), worker="w", transaction=0, outcome="ok")

    assert judge(*PAIR_SENT, *end, again).verdict is Verdict.UNKNOWN
    assert judge(*PAIR_SENT[1:], *end).verdict is Verdict.UNKNOWN


def test_a_send_in_doubt_is_no_part_of_what_must_be_whole() -> None:
    """Its worker aborts as a rule; where it commits all the same, the value may be there or not."""
    doubtful: list[Event] = [
        Invoke(time_ns=at(2), worker="w", op=2, partition="t-1", value="w-2", transaction=0),
        Info(time_ns=at(2.5), worker="w", op=2, error="timed out"),
    ]
    report = judge(*PAIR_SENT, *doubtful, *ended(3, 0), *drained(9, PAIR, PAIR, PAIR_MARKERS))

    assert report.verdict is Verdict.VALID, report
