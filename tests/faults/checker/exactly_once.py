"""Rules about workers that consume, transform and produce: each input has one output, and both count together.

The group reads each of its partitions from the first record on. A worker gives its transaction the position behind what
it has read, so all inputs below the group's position have an output in the end, and no others do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.faults.checker.anomaly import Anomaly, Promises, Rule
from tests.faults.checker.history import NO_OFFSET, Commit
from tests.faults.checker.transactions import Transactions
from tests.faults.checker.truth import Send


def disagreeing_offsets(transactions: Transactions, promises: Promises) -> Iterator[Anomaly]:
    """An input below the group's position that has no output, or one at or above it that has."""
    if not promises.is_committed_drained or transactions.truth.power_lost_ns is not None:
        return
    outputs = _outputs(transactions)
    for (group, name), commit in last_positions(transactions).items():
        if commit is None:
            continue
        partition = transactions.truth.partition(name)
        told = f"{group} is at {commit.offset} in the end"
        for value, offset in partition.committed_in_the_end.items():
            if offset < commit.offset and not outputs.get((name, offset)):
                detail = f"{told}, and nobody has an output of {value} at {offset}"
                yield Anomaly(Rule.OFFSET_WITHOUT_OUTPUT, name, detail, partition.surroundings(offset))
        for (source, offset), sends in outputs.items():
            if source == name and offset >= commit.offset:
                detail = f"{told}, and {transactions.writers[sends[0].value]} made {sends[0].value} from {offset}"
                yield Anomaly(Rule.OUTPUT_WITHOUT_OFFSET, name, detail, partition.surroundings(offset))


def inputs_taken_twice(transactions: Transactions, promises: Promises) -> Iterator[Anomaly]:
    """An input with two outputs that readers with read_committed see in the end."""
    if not promises.is_committed_drained or transactions.truth.power_lost_ns is not None:
        return
    for (name, offset), sends in _outputs(transactions).items():
        if len(sends) > 1:
            made = "; ".join(f"{send.value} by {transactions.writers[send.value]}" for send in sends)
            around = transactions.truth.partition(name).surroundings(offset)
            yield Anomaly(Rule.TAKEN_TWICE, name, f"from {offset}: {made}", around)


def last_positions(transactions: Transactions) -> dict[tuple[str, str], Commit | None]:
    """Return the last position of each group and partition; None if nobody asked for it after all transactions."""
    staged: dict[tuple[str, str], int] = {}
    for transaction in transactions:
        for stage in transaction.staged:
            ended_ns = stage.time_ns if transaction.answer is None else transaction.answer.time_ns
            for partition, _ in stage.offsets:
                key = (stage.group, partition)
                staged[key] = max(staged.get(key, 0), ended_ns)
    workers = {transaction.worker for transaction in transactions}
    positions: dict[tuple[str, str], Commit | None] = {}
    for (group, name), ended_ns in staged.items():
        told = [
            commit
            for commit in transactions.truth.partition(name).commits
            if commit.group == group and commit.worker not in workers and commit.invoked_ns > ended_ns
        ]
        positions[group, name] = max(told, key=lambda commit: commit.time_ns, default=None)
    return positions


def _outputs(transactions: Transactions) -> dict[tuple[str, int], list[Send]]:
    """Return what was made of each input, as far as readers with read_committed see it in the end."""
    outputs: dict[tuple[str, int], list[Send]] = defaultdict(list)
    for transaction in transactions:
        for send in transaction.sends:
            source = send.invoked.source
            if source is not None and source[1] != NO_OFFSET and transactions.is_visible(send):
                outputs[source].append(send)
    return outputs
