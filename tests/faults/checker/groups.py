"""Rules about consumer groups: positions go forward only, over what was read, and a partition has one owner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.faults.checker.anomaly import Anomaly, Promises, Rule
from tests.faults.checker.history import Commit
from tests.faults.checker.truth import PartitionTruth


def commits_going_back(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """A position below one that was known before anybody asked for this one.

    A member goes on from what is committed, and one of an earlier generation is not heard any more, so nobody can
    rightly commit less. Of two that were under way together either may be the last.
    """
    for commits in _by_group(partition).values():
        known = sorted(commits, key=lambda commit: commit.time_ns)
        highest: Commit | None = None
        position = 0
        for commit in sorted(commits, key=lambda commit: commit.invoked_ns):
            while position < len(known) and known[position].time_ns < commit.invoked_ns:
                if highest is None or known[position].offset > highest.offset:
                    highest = known[position]
                position += 1
            if highest is not None and commit.offset < highest.offset:
                detail = f"{highest.offset} from {highest.worker}, then {commit.offset} from {commit.worker}"
                surroundings = partition.surroundings(commit.offset)
                yield Anomaly(Rule.COMMITTED_BACK, partition.name, f"{commit.group}: {detail}", surroundings)


def commits_of_what_nobody_read(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """Records before a group's position that reached none of its members, which began with the first one.

    Members that do not say what they own commit in transactions, and are judged by what these write.
    """
    for group, commits in _by_group(partition).items():
        members = {own.worker for own in partition.owners if own.group == group}
        if not members:
            continue
        read = {read.offset for read in partition.reads if read.worker in members}
        end = max(commit.offset for commit in commits)
        missed = [offset for offset in partition.read_between(-1, end) if offset not in read]
        if missed:
            detail = f"{group} is at {end}, and none of {sorted(members)} has read {missed[:5]}"
            yield Anomaly(Rule.COMMITTED_UNREAD, partition.name, detail, partition.surroundings(missed[0]))


def owners_in_one_generation(partition: PartitionTruth, promises: Promises) -> Iterator[Anomaly]:
    """Two members that were given the partition in one generation."""
    owners: dict[tuple[str, int], set[str]] = defaultdict(set)
    for own in partition.owners:
        owners[own.group, own.generation].add(own.worker)
    for (group, generation), workers in sorted(owners.items()):
        if len(workers) > 1:
            detail = f"{group}: {sorted(workers)} in generation {generation}"
            yield Anomaly(Rule.TWO_OWNERS, partition.name, detail)


def _by_group(partition: PartitionTruth) -> dict[str, list[Commit]]:
    commits: dict[str, list[Commit]] = defaultdict(list)
    for commit in partition.commits:
        commits[commit.group].append(commit)
    return commits
