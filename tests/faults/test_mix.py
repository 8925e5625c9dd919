"""One fault after another, by chance; and none, for as long.

OTTLA_SOAK_SECONDS sets how long `make soak` does so, OTTLA_FAULT_SEED which faults come.
"""

from __future__ import annotations

import pytest
from tests.faults.chance import MIX_SECONDS, SOAK_SECONDS, harm_by_chance
from tests.faults.experiment import Experiment, check_valid, wait_seconds


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(MIX_SECONDS, marks=[pytest.mark.long_faults, pytest.mark.timeout(1200)], id="minutes"),
        # What was begun before the end is healed and read after it.
        pytest.param(SOAK_SECONDS, marks=[pytest.mark.soak, pytest.mark.timeout(2 * SOAK_SECONDS + 1200)], id="soak"),
    ],
)
def test_f44_faults_by_chance_lose_nothing(networked_experiment: Experiment, seconds: float) -> None:
    """Sometimes the next one comes before the last is overcome."""
    experiment = networked_experiment
    # The last fault may begin just before the end, and has to heal.
    experiment.seconds_max = seconds + 600
    experiment.start()
    harm_by_chance(experiment, seconds, lambda: experiment.wait_for_acks(20))

    check_valid(experiment.finish())


@pytest.mark.long_faults
def test_f45_without_faults_nothing_is_wrong(experiment: Experiment) -> None:
    """A healthy cluster keeps its promises, too."""
    experiment.start()
    with experiment.fault("do nothing", "nobody", ack_gap_max_s=10.0) as fault:
        wait_seconds(MIX_SECONDS)
        fault.proof = "nothing to prove"

    check_valid(experiment.finish())
