"""Faults by chance: what may happen to a cluster, one after the other, for as long as a test wants."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

from tests.faults.cluster import BROKER_IDS, SESSION_TIMEOUT_S
from tests.faults.experiment import Experiment, wait_seconds
from tests.faults.steps import host, network_of

MIX_SECONDS = 90.0
SOAK_SECONDS = float(os.environ.get("OTTLA_SOAK_SECONDS", "1800"))
SEED = int(os.environ.get("OTTLA_FAULT_SEED", "1"))
HARM_SECONDS = (1.0, 2.5 * SESSION_TIMEOUT_S)


def end(experiment: Experiment, chance: random.Random, broker: int) -> None:
    """Kill a broker, or let it vanish with its guardian."""
    process = experiment.cluster.brokers[broker]
    chance.choice((process.kill, process.vanish))()


def kill_one(experiment: Experiment, chance: random.Random) -> str:
    """Kill a broker, and start it again."""
    broker = chance.choice(BROKER_IDS)
    end(experiment, chance, broker)
    last(chance)
    experiment.cluster.start_brokers(broker)
    return f"broker {broker} was gone"


def kill_two(experiment: Experiment, chance: random.Random) -> str:
    """Kill two brokers, one a moment after the other, and start them again in any order."""
    brokers = chance.sample(BROKER_IDS, 2)
    for broker in brokers:
        end(experiment, chance, broker)
        wait_seconds(chance.uniform(0, SESSION_TIMEOUT_S))
    last(chance)
    for broker in chance.sample(brokers, 2):
        experiment.cluster.start_brokers(broker)
    return f"brokers {brokers} were gone"


def flap_one(experiment: Experiment, chance: random.Random) -> str:
    """Kill a broker again as soon as it is back, three times."""
    broker = chance.choice(BROKER_IDS)
    for _ in range(3):
        end(experiment, chance, broker)
        experiment.cluster.start_brokers(broker)
    return f"broker {broker} was gone three times"


def restart_one(experiment: Experiment, chance: random.Random) -> str:
    """Stop a broker cleanly, and start it again."""
    broker = chance.choice(BROKER_IDS)
    assert experiment.cluster.brokers[broker].stop() == 0
    experiment.cluster.start_brokers(broker)
    return f"broker {broker} was stopped"


def pause_one(experiment: Experiment, chance: random.Random) -> str:
    """Let a broker stand still."""
    broker = chance.choice(BROKER_IDS)
    experiment.cluster.pause(broker)
    last(chance)
    experiment.cluster.resume(broker)
    return f"broker {broker} was stopped"


def isolate_one(experiment: Experiment, chance: random.Random) -> str:
    """Cut a broker off from some of the others, from ZooKeeper, or from clients."""
    network = network_of(experiment.cluster)
    broker = chance.choice(BROKER_IDS)
    peers = [*(host(one) for one in BROKER_IDS if one != broker), "zookeeper", "client"]
    cut_off = chance.sample(peers, chance.randint(1, len(peers)))
    network.cut(host(broker), *cut_off)
    last(chance)
    network.heal()
    return f"broker {broker} was cut off from {cut_off}, {network.dropped_packets()} packets dropped so far"


def restart_zookeeper(experiment: Experiment, chance: random.Random) -> str:
    """Kill ZooKeeper, and start it again."""
    experiment.cluster.zookeeper.kill()
    last(chance)
    experiment.cluster.zookeeper.start()
    return "ZooKeeper was gone"


def pause_zookeeper(experiment: Experiment, chance: random.Random) -> str:
    """Let ZooKeeper stand still."""
    experiment.cluster.zookeeper.pause()
    last(chance)
    experiment.cluster.zookeeper.resume()
    return "ZooKeeper was stopped"


def do_nothing(experiment: Experiment, chance: random.Random) -> str:
    """Leave the cluster alone."""
    last(chance)
    return "nothing to prove"


FAULTS: tuple[Callable[[Experiment, random.Random], str], ...] = (
    kill_one,
    kill_two,
    flap_one,
    restart_one,
    pause_one,
    isolate_one,
    restart_zookeeper,
    pause_zookeeper,
)


def last(chance: random.Random) -> None:
    """Let something last for a while."""
    wait_seconds(chance.uniform(*HARM_SECONDS))


def harm_by_chance(experiment: Experiment, seconds: float, catch_up: Callable[[], None]) -> None:
    """Do harm for some time: periods with a fault, one in four without.

    Sometimes the next one comes before the last is overcome, and `catch_up` waits until it is.
    """
    chance = random.Random(SEED)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        harm = do_nothing if chance.random() < 0.25 else chance.choice(FAULTS)
        with experiment.fault(harm.__name__.replace("_", " "), "chance") as fault:
            fault.proof = harm(experiment, chance)
        if chance.random() < 0.5:
            experiment.wait_for_full_isr()
            catch_up()
