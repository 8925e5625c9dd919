"""Topics that are deleted and brought back under load, with brokers that are killed on the way."""

from __future__ import annotations

import threading
import time

import pytest
from tests.faults.cluster import Cluster
from tests.faults.cluster_state import StateUnknownError
from tests.faults.experiment import Experiment, check_valid
from tests.faults.steps import kill, until_known
from tests.kit.waiting import until

from ottla.protocol.api import Api
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.undelete_topics import UndeletableTopic, UndeleteTopicsRequest
from ottla.protocol.primitives import uuid_from_text

TIMEOUT_MS = 15_000


def ask_to_undelete(cluster: Cluster, topic_id: str) -> ErrorCode:
    """Ask the controller to bring a topic back; return what it says."""
    request = UndeleteTopicsRequest(topics=[UndeletableTopic(topic_id=uuid_from_text(topic_id))], timeout_ms=TIMEOUT_MS)
    answer = cluster.request(cluster.state.controller(), Api.UNDELETE_TOPICS, 0, request)
    return ErrorCode.of(answer.error_code or answer.topics[0].error_code)


def undelete(cluster: Cluster, topic_id: str) -> None:
    """Bring a topic back, as somebody does who asks until it is there."""
    until(
        lambda: ask_to_undelete(cluster, topic_id) is ErrorCode.NONE,
        "the topic is back",
        not_yet=(KafkaError, OSError, StateUnknownError, AssertionError),
    )


def deleted(experiment: Experiment) -> str:
    """Delete the topic of an experiment; return its id."""
    topic_id = str(experiment.cluster.state.topic_id(experiment.topic))
    experiment.cluster.delete_topic(experiment.topic)
    return topic_id


@pytest.mark.long_faults
@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.03])
@pytest.mark.parametrize("victim", ["controller", "another broker"])
def test_f43_a_topic_comes_back_although_a_broker_dies_meanwhile(
    experiment: Experiment, victim: str, delay_s: float
) -> None:
    """Everything that was acknowledged before the deletion is there, on all replicas, and the load goes on."""
    cluster = experiment.cluster
    experiment.start(ottla_undelete_ms="600000")
    controller = cluster.state.controller()
    target = controller if victim == "controller" else next(each for each in (1, 2, 3) if each != controller)
    topic_id = deleted(experiment)
    with experiment.fault("kill during undelete", f"broker {target}") as fault:

        def ask() -> None:
            try:
                ask_to_undelete(cluster, topic_id)
            except (KafkaError, OSError, StateUnknownError, AssertionError):
                return

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(delay_s)
        fault.proof = kill(cluster, target)
        undelete(cluster, topic_id)
        asking.join()
        experiment.wait_for_acks(20)
    cluster.start_brokers(target)
    experiment.wait_for_full_isr()
    assert cluster.state.topic_id(experiment.topic) == topic_id

    check_valid(experiment.finish())


@pytest.mark.long_faults
def test_f44_a_broker_that_is_down_while_a_topic_comes_back_has_it_in_the_end(experiment: Experiment) -> None:
    """It takes its kept log, and copies what it missed."""
    cluster = experiment.cluster
    experiment.start(ottla_undelete_ms="600000")
    topic_id = deleted(experiment)
    with experiment.fault("undelete without a broker", "broker 3") as fault:
        fault.proof = kill(cluster, 3)
        undelete(cluster, topic_id)
        experiment.wait_for_acks(20)
    cluster.start_brokers(3)
    experiment.wait_for_full_isr()
    assert "kept_log_brought_back" in cluster.brokers[3].output()

    check_valid(experiment.finish())


@pytest.mark.long_faults
def test_f45_a_broker_that_dies_during_a_deletion_keeps_its_logs_too(experiment: Experiment) -> None:
    """The deletion waits for it, and then the topic comes back with it."""
    cluster = experiment.cluster
    experiment.start(ottla_undelete_ms="600000")
    topic_id = str(cluster.state.topic_id(experiment.topic))
    with experiment.fault("kill during deletion", "broker 2") as fault:
        deleting = threading.Thread(target=lambda: cluster.delete_topic(experiment.topic))
        deleting.start()
        fault.proof = kill(cluster, 2)
        cluster.start_brokers(2)
        deleting.join()
        until_known(lambda: not cluster.state.has_topic(experiment.topic), "the topic is gone")
        undelete(cluster, topic_id)
        experiment.wait_for_acks(20)
    experiment.wait_for_full_isr()

    check_valid(experiment.finish())
