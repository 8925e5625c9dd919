"""Rules about what was sent: it is there, once, in order, and only if it may be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import pairwise

from tests.faults.checker.anomaly import Anomaly, Promises, Rule
from tests.faults.checker.history import ACKS_ALL, NO_OFFSET, NO_PRODUCER_ID, NO_TRANSACTION
from tests.faults.checker.truth import Outcome, PartitionTruth, Send


def lost_acked_writes(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """An acknowledged value that is not there in the end, or over which somebody read without ever getting it."""
    highest_read = partition.read_offsets[-1] if partition.read_offsets else NO_OFFSET
    for send in partition.sends:
        if send.outcome is not Outcome.OK or send.invoked.acks != ACKS_ALL:
            continue
        if promises.is_drained:
            is_lost = send.value not in partition.values_in_the_end
        else:
            is_lost = send.value not in partition.reads_of and NO_OFFSET < send.offset <= highest_read
        is_hidden = promises.is_committed_drained and not (
            _is_transactional(send) or send.value in partition.committed_in_the_end
        )
        if is_lost or is_hidden:
            detail = f"{send}; the highest offset read is {highest_read}"
            if not is_lost:
                detail = f"{send}; readers with read_committed do not see it"
            yield Anomaly(Rule.LOST_ACKED_WRITE, partition.name, detail, partition.surroundings(max(0, send.offset)))


def lost_reads(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """A value that somebody read, acknowledged or not, and that is not there in the end.

    What a reader with read_committed has read stays committed, unless its marker went with the power.
    """
    if not promises.is_drained:
        return
    for value, reads in partition.reads_of.items():
        if value not in partition.values_in_the_end:
            around = partition.surroundings(reads[0].offset)
            yield Anomaly(Rule.LOST_READ, partition.name, f"{reads[0]}, gone in the end", around)
            continue
        if value in partition.committed_in_the_end or partition.lost_from is not None:
            continue
        committed = next((read for read in reads if read.is_committed), None)
        if committed is not None and promises.is_committed_drained:
            detail = f"{committed} with read_committed, hidden in the end"
            yield Anomaly(Rule.LOST_READ, partition.name, detail, partition.surroundings(committed.offset))


def inconsistent_offsets(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """One offset that has held two values."""
    for offset, values in partition.values_at.items():
        if len(values) > 1:
            seen = "; ".join(_sightings(partition, value) for value in sorted(values))
            yield Anomaly(Rule.INCONSISTENT_OFFSET, partition.name, seen, partition.surroundings(offset))


def duplicates(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """One value at two offsets; a retry may do that without idempotence."""
    if not promises.is_idempotent:
        return
    for value, producers in partition.repeats().items():
        if not is_sent_again(partition, value, producers.values()):
            detail = f"at {list(producers)}: {_sightings(partition, value)}"
            yield Anomaly(Rule.DUPLICATE, partition.name, detail, partition.surroundings(max(producers)))


def is_sent_again(partition: PartitionTruth, value: str, producers: Collection[tuple[int, int]]) -> bool:
    """Whether the client itself sent a value again in another epoch, so that no broker can know that it is the same.

    librdkafka does that outside of transactions; test_epoch_of_a_client.py shows when. Inside, it aborts.
    """
    send = partition.send_of.get(value)
    if send is not None and _is_transactional(send):
        return False
    known = {producer for producer in producers if producer[0] != NO_PRODUCER_ID}
    return len(known) == len(producers)


def aborted_reads(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """A value that was read though its send surely did not happen."""
    for send in partition.sends:
        if send.outcome is Outcome.FAIL and (reads := partition.reads_of.get(send.value)):
            yield Anomaly(
                Rule.ABORTED_READ, partition.name, f"{send}; {reads[0]}", partition.surroundings(reads[0].offset)
            )


def unknown_values(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """A value that nobody sent to this partition, or that was read before it was sent."""
    for value, reads in partition.reads_of.items():
        send = partition.send_of.get(value)
        first = min(reads, key=lambda read: read.time_ns)
        if send is None or first.time_ns < send.invoked.time_ns:
            detail = f"{first}, which nobody had sent"
            yield Anomaly(Rule.UNKNOWN_VALUE, partition.name, detail, partition.surroundings(first.offset))


def reorderings(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """Two sends of one worker at inverted offsets; without idempotence only if the first was over before the second."""
    by_worker: dict[str, list[Send]] = defaultdict(list)
    for send in partition.sends:
        if partition.reads_of.get(send.value):
            by_worker[send.invoked.worker].append(send)
    for sends in by_worker.values():
        # The send with the highest offset of all those that count as earlier.
        highest: Send | None = None
        completed: list[Send] = []
        for send in sends:
            if promises.is_idempotent:
                earlier = highest
                highest = max(filter(None, (highest, send)), key=lambda one: _place(partition, one))
            else:
                before = [one for one in completed if (one.completed_ns or 0) < send.invoked.time_ns]
                earlier = max(before, key=lambda one: _place(partition, one), default=None)
                if send.completed_ns is not None:
                    completed.append(send)
            if earlier is not None and _place(partition, send) < _place(partition, earlier):
                detail = f"{earlier} ({_place(partition, earlier)}) before {send} ({_place(partition, send)})"
                around = partition.surroundings(_place(partition, send))
                yield Anomaly(Rule.REORDERING, partition.name, detail, around)


def real_time_offsets(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """A record at or below an offset that somebody knew, acknowledged or read, before its send began."""
    known = [
        *((read.time_ns, read.offset, str(read)) for read in partition.reads),
        *(
            (send.completed_ns, send.offset, str(send))
            for send in partition.sends
            if send.outcome is Outcome.OK and send.completed_ns is not None
        ),
    ]
    known.sort()
    position, highest, highest_seen = 0, NO_OFFSET, ""
    for send in sorted(partition.sends, key=lambda one: one.invoked.time_ns):
        while position < len(known) and known[position][0] < send.invoked.time_ns:
            _, offset, seen = known[position]
            if offset > highest:
                highest, highest_seen = offset, seen
            position += 1
        offsets = partition.offsets_of.get(send.value)
        if offsets and min(offsets) <= highest:
            detail = f"{send} (at {sorted(offsets)}) began after {highest_seen}"
            yield Anomaly(Rule.REAL_TIME_OFFSET, partition.name, detail, partition.surroundings(min(offsets)))


def offset_gaps(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """Offsets of which nobody knows anything, between others: a plain topic has none."""
    if not promises.is_drained:
        return
    known = sorted(partition.values_at)
    for offset, following in pairwise(known):
        if following != offset + 1:
            detail = f"nothing between {offset} and {following}"
            yield Anomaly(Rule.OFFSET_GAP, partition.name, detail, partition.surroundings(offset))


def _is_transactional(send: Send) -> bool:
    return send.invoked.transaction != NO_TRANSACTION


def _place(partition: PartitionTruth, send: Send) -> int:
    return partition.reads_of[send.value][0].offset


def _sightings(partition: PartitionTruth, value: str) -> str:
    send = partition.send_of.get(value)
    seen = [] if send is None else [str(send)]
    # One read of each offset, one that shows the producer if there is any.
    of_value = sorted(partition.reads_of.get(value, []), key=lambda read: read.producer[0])
    reads = {read.offset: read for read in of_value}
    return ", ".join((*seen, *map(str, reads.values())))
