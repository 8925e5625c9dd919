"""How a log with holes is written to a cluster that gives offsets itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.client.mirror.kafka_steps import SEQUENCES, Fill, Producer, Send, filler, sent_by, steps
from ottla.protocol.compression import Codec
from ottla.protocol.control_records import ControlType, EndTransactionMarker, build_marker_batch
from ottla.protocol.messages.fetch import AbortedTransaction
from ottla.protocol.record_batch_builder import RecordBatchBuilder
from ottla.protocol.records import RecordBatch

OURS = Producer(99, 3)


def batch(
    offset: int,
    deltas: tuple[int, ...],
    *,
    last: int | None = None,
    producer_id: int = -1,
    codec: Codec = Codec.NONE,
    log_append_time: int | None = None,
    delete_horizon: int | None = None,
) -> RecordBatch:
    """Return a batch with records at these offsets, counted from its first; in a transaction if it has a producer."""
    builder = RecordBatchBuilder(delete_horizon)
    for delta in deltas:
        builder.append(1000 + delta, b"k", b"%d" % (offset + delta), [("h", None)], offset_delta=delta)
    built = builder.build(
        base_offset=offset,
        last_offset_delta=last,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=producer_id >= 0,
        codec=codec,
        log_append_time=log_append_time,
    )
    return RecordBatch(built)


def marker(offset: int, producer_id: int, kind: ControlType = ControlType.COMMIT) -> RecordBatch:
    """Return the marker of a transaction."""
    ended = EndTransactionMarker(kind, 0)
    return RecordBatch(
        build_marker_batch(ended, producer_id=producer_id, producer_epoch=0, timestamp=1, base_offset=offset)
    )


def written(taken: list[Fill | Send], end: int) -> dict[int, bytes | None]:
    """Return the records that a log has after these steps, by the offsets that it gives; None where it was filled."""
    found: dict[int, bytes | None] = {}
    for step in taken:
        if isinstance(step, Fill):
            found |= dict.fromkeys(range(end, end + step.offsets))
            end += step.offsets
        else:
            records = list(step.batch.records())
            assert step.batch.record_count == step.batch.last_offset_delta + 1 == len(records)
            found |= {end + index: record.value for index, record in enumerate(records)}
            end += len(records)
    return found


def test_a_batch_without_holes_is_sent_as_it_is() -> None:
    """Only who sends it changes: the records are the same bytes, compressed or not."""
    source = batch(7, (0, 1, 2), codec=Codec.GZIP, producer_id=5)

    (step,) = steps([source], 7)

    assert isinstance(step, Send)
    assert step.batch is source
    sent = RecordBatch(sent_by(source, OURS, 40))
    sent.check()
    assert sent.view[61:] == source.view[61:]
    assert (sent.producer_id, sent.producer_epoch, sent.base_sequence) == (99, 3, 40)
    assert not sent.is_transactional
    assert [record[1:] for record in sent.records()] == [record[1:] for record in source.records()]


def test_markers_and_aborted_records_take_up_their_offsets() -> None:
    """Those of a committed transaction are sent, although its producer has aborted one before."""
    taken = list(
        steps(
            [
                batch(0, (0, 1), producer_id=5),
                batch(2, (0,), producer_id=6),
                marker(3, 5, ControlType.ABORT),
                batch(4, (0,), producer_id=5),
                marker(5, 5),
                marker(6, 6),
            ],
            0,
            [AbortedTransaction(producer_id=5, first_offset=0)],
        )
    )

    assert [each.offsets if isinstance(each, Fill) else each.batch.base_offset for each in taken] == [2, 2, 1, 4, 2]
    assert written(taken, 0) == {0: None, 1: None, 2: b"2", 3: None, 4: b"4", 5: None, 6: None}


def test_holes_of_compaction_are_filled_between_and_within_batches() -> None:
    """A batch that the cleaner has thinned out becomes several."""
    taken = list(steps([batch(3, (0, 4, 5), last=8), batch(20, (0,))], 1))

    assert written(taken, 1) == {
        **dict.fromkeys(range(1, 21)),
        3: b"3",
        7: b"7",
        8: b"8",
        20: b"20",
    }
    times = [record.timestamp for step in taken if isinstance(step, Send) for record in step.batch.records()]
    assert times == [1000, 1004, 1005, 1000]


def test_what_only_brokers_may_say_is_not_repeated() -> None:
    """Records keep the times that consumers see."""
    for source, times in (
        (batch(0, (0, 1), log_append_time=5000), [5000, 5000]),
        (batch(0, (0, 1), delete_horizon=9), [1000, 1001]),
    ):
        (step,) = steps([source], 0)

        assert isinstance(step, Send)
        assert not step.batch.attributes & 0x48
        assert [record.timestamp for record in step.batch.records()] == times


def test_what_the_log_has_is_not_sent_again() -> None:
    """A fetch begins with the whole batch that holds its offset."""
    taken = list(steps([batch(0, (0, 1)), batch(2, (0, 1, 2))], 3))

    assert written(taken, 3) == {3: b"3", 4: b"4"}


def test_sequences_begin_again_at_0() -> None:
    """As those of every producer do."""
    source = batch(0, (0, 1))
    assert RecordBatch(sent_by(source, OURS, SEQUENCES - 1)).last_sequence == 0


def test_a_filler_is_small() -> None:
    """Ten million offsets before the start of a log are a few megabytes for a moment."""
    made = filler(20_000, 1)
    assert made.record_count == made.last_offset_delta + 1 == 20_000
    assert made.size < 100_000


@examples(100)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.sets(st.integers(0, 6), min_size=1), st.integers(0, 3), st.booleans())),
    st.integers(0, 10),
)
def test_every_record_gets_its_offset(shape: list[tuple[int, set[int], int, bool]], skipped: int) -> None:
    """Whatever the holes are, and wherever the copy goes on."""
    offset, batches = 0, []
    expected: dict[int, bytes | None] = {}
    for gap, deltas, tail, is_control in shape:
        offset += gap
        if is_control:
            batches.append(marker(offset, 1))
            offset += 1
            continue
        made = batch(offset, tuple(sorted(deltas)), last=max(deltas) + tail)
        batches.append(made)
        expected |= {record.offset: record.value for record in made.records()}
        offset = made.next_offset
    begin = min(skipped, offset)

    found = written(list(steps(batches, begin)), begin)

    assert found == {each: expected.get(each) for each in range(begin, offset)}
