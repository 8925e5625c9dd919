"""State nodes, written many at a time by a controller in office."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.broker.sessions import NOW_MS, Connect

from ottla.broker.cluster import znodes
from ottla.broker.cluster.zookeeper import ZooKeeper
from ottla.broker.controller.election import Fence, elect
from ottla.broker.controller.partition_states import LeaderAndIsr
from ottla.broker.controller.state_store import StateStore
from ottla.protocol.identifiers import UNKNOWN_BROKER_EPOCH, TopicPartition

PARTITIONS = [TopicPartition("orders", index) for index in range(30)]
STATE = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1, 2), controller_epoch=1, partition_epoch=0)


# Brokers that live, with their epochs: the numbers of transactions.
EPOCHS = {1: 3, 2: 4}


def broker_epoch(broker: int) -> int:
    """Say in which life a broker is."""
    return EPOCHS.get(broker, UNKNOWN_BROKER_EPOCH)


def store(zookeeper: ZooKeeper) -> StateStore:
    """Make the store of the first controller."""
    elected = elect(zookeeper, 1, NOW_MS, lambda: None)
    assert elected is not None
    zookeeper.ensure_path("/brokers/topics/orders")
    return StateStore(zookeeper, Fence(zookeeper, elected), broker_epoch)


def test_states_are_created_with_their_parents(connect: Connect) -> None:
    """And read back as they were written."""
    zookeeper = connect()
    states = store(zookeeper)
    wanted = dict.fromkeys(PARTITIONS, STATE)
    assert states.create(wanted) == wanted
    assert states.read([*PARTITIONS, TopicPartition("orders", 99)]) == wanted
    assert zookeeper.read("/brokers/topics/orders/partitions/7").data == b""


def test_a_creation_that_was_half_done_is_finished(connect: Connect) -> None:
    """Our own state counts, an empty parent is filled, and a state of somebody else is left alone."""
    zookeeper = connect()
    states = store(zookeeper)
    ours, empty, foreign = PARTITIONS[:3]
    states.create({ours: STATE, foreign: replace(STATE, leader=2)})
    zookeeper.create(znodes.partition_path(*empty))
    assert states.create({ours: STATE, empty: STATE, foreign: STATE}) == {ours: STATE, empty: STATE}
    assert states.read([foreign])[foreign].leader == 2


def test_updates_raise_the_partition_epoch(connect: Connect) -> None:
    """What shall not change is not written; what has no node is left out."""
    states = store(connect())
    states.create(dict.fromkeys(PARTITIONS[:3], STATE))

    def change(partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
        return {0: state.led_by(2, [2]), 1: state, 2: None}[partition.partition]

    updated = states.update(PARTITIONS[:4], change)
    expected = replace(STATE, leader=2, leader_epoch=1, isr=(2,), partition_epoch=1)
    assert updated == {PARTITIONS[0]: expected, PARTITIONS[1]: STATE}
    assert states.read(PARTITIONS[:1]) == {PARTITIONS[0]: expected}


def test_a_conflict_is_read_and_tried_again(connect: Connect) -> None:
    """The change is made to what is there then."""
    zookeeper, other = connect(), connect()
    states = store(zookeeper)
    partition = PARTITIONS[0]
    states.create({partition: STATE})
    path = znodes.state_path(*partition)
    seen: list[tuple[int, ...]] = []

    def change(_: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr:
        seen.append(state.isr)
        if len(seen) == 1:
            other.write(path, znodes.PartitionStateNode(leader=1, leader_epoch=0, controller_epoch=1, isr=[1]).encode())
        return state.led_by(1, state.isr)

    updated = states.update([partition], change)
    assert seen == [(1, 2), (1,)]
    assert (updated[partition].isr, updated[partition].partition_epoch) == ((1,), 2)


def test_a_write_whose_answer_was_lost_is_recognised(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is what was wanted, one version on."""
    zookeeper = connect()
    states = store(zookeeper)
    states.create({PARTITIONS[0]: STATE})
    multi_many = zookeeper.multi_many

    def twice(multis: list[object]) -> object:
        multi_many(multis)  # type: ignore[arg-type]
        return multi_many(multis)  # type: ignore[arg-type]

    monkeypatch.setattr(zookeeper, "multi_many", twice)
    updated = states.update(PARTITIONS[:1], lambda _, state: state.led_by(2, [2]))
    assert updated[PARTITIONS[0]].leader_epoch == 1
    assert updated[PARTITIONS[0]].partition_epoch == 1


def test_states_that_are_newer_or_make_no_sense_are_left_alone(connect: Connect) -> None:
    """A newer controller's word counts, and garbage is nobody's."""
    zookeeper = connect()
    states = store(zookeeper)
    newer, garbage = PARTITIONS[:2]
    states.create({newer: STATE, garbage: STATE})
    content = znodes.PartitionStateNode(leader=3, leader_epoch=9, controller_epoch=8, isr=[3])
    zookeeper.write(znodes.state_path(*newer), content.encode())
    zookeeper.write(znodes.state_path(*garbage), b"garbage")
    assert states.update([newer, garbage], lambda _, state: state.led_by(1, [1])) == {}
    assert states.read([newer, garbage])[newer].leader == 3


def test_what_is_known_is_believed_until_a_write_proves_it_wrong(connect: Connect) -> None:
    """Then the node is read, and the change is made on top of what it holds."""
    zookeeper = connect()
    states = store(zookeeper)
    known = states.create(dict.fromkeys(PARTITIONS, STATE))
    seen: list[int] = []
    states.update(PARTITIONS[:1], lambda _, state: state.led_by(2, state.isr))

    def change(_partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr:
        seen.append(state.partition_epoch)
        return state.led_by(3, state.isr)

    updated = states.update(PARTITIONS[:2], change, known)

    assert seen == [0, 0, 1]
    assert [updated[each].leader_epoch for each in PARTITIONS[:2]] == [2, 1]
    assert states.read(PARTITIONS[:2]) == updated


def test_a_replacement_is_bound_to_its_version(connect: Connect) -> None:
    """Those whose nodes were changed meanwhile are left out, and left alone."""
    zookeeper = connect()
    states = store(zookeeper)
    known = states.create(dict.fromkeys(PARTITIONS, STATE))
    moved = states.update(PARTITIONS[:1], lambda _, state: state.led_by(2, state.isr))

    written = states.replace({each: replace(known[each], isr=(1,)) for each in PARTITIONS})

    assert list(written) == PARTITIONS[1:]
    assert all(state.isr == (1,) and state.partition_epoch == 1 for state in written.values())
    assert states.read(PARTITIONS) == moved | written


def test_a_write_keeps_the_lives_of_members_and_notes_those_of_new_ones(connect: Connect) -> None:
    """So a restart that nobody has dealt with still shows after any write; who left the ISR is forgotten."""
    zookeeper = connect()
    states = store(zookeeper)
    partition = PARTITIONS[0]
    known = states.create({partition: replace(STATE, isr=(1,), lives={1: 2})})

    states.replace({partition: replace(known[partition], isr=(1, 2))})

    assert states.read([partition])[partition].lives == {1: 2, 2: 4}
    states.update([partition], lambda _, state: state.led_by(2, [2]))
    data = zookeeper.read(znodes.state_path(*partition)).data
    assert data.endswith(b'"isr":[2],"isr_broker_epochs":[4]}')


def test_lives_that_kafka_does_not_write_follow_from_the_order_of_transactions(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that registered after the node was written was in another life then; so was one that is gone."""
    zookeeper = connect()
    states = store(zookeeper)
    partition = PARTITIONS[0]
    states.create({partition: STATE})
    path = znodes.state_path(*partition)
    content = znodes.PartitionStateNode(leader=1, leader_epoch=0, controller_epoch=1, isr=[1, 2, 3])
    written = zookeeper.write(path, content.encode()).mzxid
    monkeypatch.setitem(EPOCHS, 1, written - 1)
    monkeypatch.setitem(EPOCHS, 2, written + 1)

    lives = states.read([partition])[partition].lives
    assert lives == {1: written - 1, 2: UNKNOWN_BROKER_EPOCH, 3: UNKNOWN_BROKER_EPOCH}
