"""The rules of reassignment, as plain functions.

    target    the replicas that a partition will have
    origin    those that it had before
    extras    those that an earlier target would have added, and that nobody wants any more

A topic's node has one list of replicas, and which of them are added and removed:

    replicas = target + origin + extras     adding = replicas - origin     removing = replicas - target

So target and origin follow from the node, and the extras are those that are both added and removed. A new controller
finds in the node all that its predecessor had to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ottla.broker.controller.context import ReplicaAssignment
from ottla.broker.controller.partition_states import LeaderAndIsr
from ottla.protocol.errors import ErrorCode, KafkaError


def is_reassigned(assignment: ReplicaAssignment) -> bool:
    """Return whether a partition is being reassigned."""
    return bool(assignment.adding or assignment.removing)


def target_of(assignment: ReplicaAssignment) -> tuple[int, ...]:
    """Return the replicas that a partition will have."""
    return _without(assignment.replicas, assignment.removing)


def origin_of(assignment: ReplicaAssignment) -> tuple[int, ...]:
    """Return the replicas that a partition had before."""
    return _without(assignment.replicas, assignment.adding)


def extras_of(assignment: ReplicaAssignment) -> tuple[int, ...]:
    """Return the replicas that belong neither to the target nor to the origin."""
    return tuple(broker for broker in assignment.adding if broker in assignment.removing)


def reassigned(assignment: ReplicaAssignment, target: Sequence[int]) -> ReplicaAssignment:
    """Return the assignment of a partition that starts to move to a target, even if it is being moved already."""
    origin = origin_of(assignment)
    replicas = tuple(dict.fromkeys((*target, *origin, *assignment.replicas)))
    return ReplicaAssignment(replicas, _without(replicas, origin), _without(replicas, target))


def without(assignment: ReplicaAssignment, gone: Collection[int]) -> ReplicaAssignment:
    """Return an assignment without some of its replicas."""
    return ReplicaAssignment(*(_without(brokers, gone) for brokers in assignment))


def with_extras(assignment: ReplicaAssignment, extras: Iterable[int]) -> ReplicaAssignment:
    """Return an assignment with replicas that belong neither to the target nor to the origin."""
    more = tuple(extras)
    return ReplicaAssignment(*((*brokers, *more) for brokers in assignment))


def check_target(assignment: ReplicaAssignment, target: Sequence[int], live: Collection[int]) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless a partition can begin to move to a target."""
    if not target:
        raise _invalid("a partition needs at least one replica")
    if min(target) < 0:
        raise _invalid(f"a broker id cannot be negative: {list(target)}")
    if len(set(target)) < len(target):
        raise _invalid(f"a broker is named twice: {list(target)}")
    if dead := sorted(set(target) - set(origin_of(assignment)) - set(live)):
        raise _invalid(f"brokers that would get a replica are not alive: {dead}")


def elected(replicas: Sequence[int], state: LeaderAndIsr, online: Collection[int]) -> LeaderAndIsr | None:
    """Return the next state of a partition that has only these replicas from now on; None if none of them could lead.

    The leader stays if it can. Otherwise the first of them that is online and in sync leads. Other replicas leave the
    ISR.
    """
    isr = [broker for broker in state.isr if broker in replicas]
    candidates = [broker for broker in (state.leader, *replicas) if broker in isr and broker in online]
    return state.led_by(candidates[0], isr) if candidates else None


def _without(brokers: Iterable[int], gone: Collection[int]) -> tuple[int, ...]:
    return tuple(broker for broker in brokers if broker not in gone)


def _invalid(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)
