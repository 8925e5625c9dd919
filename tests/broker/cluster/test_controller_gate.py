"""Which requests of a controller pass, and which come from the past."""

from __future__ import annotations

import pytest

from ottla.broker.cluster.controller_gate import ControllerGate
from ottla.protocol.errors import ErrorCode, KafkaError


class Life:
    """A broker's registration."""

    def __init__(self, epoch: int, after_waiting: int | None = None) -> None:
        self.epoch = epoch
        self._after_waiting = after_waiting

    def wait(self) -> None:
        """Be registered by now, or still not."""
        if self._after_waiting is not None:
            self.epoch = self._after_waiting


def passes(gate: ControllerGate, controller_epoch: int, broker_epoch: int) -> ErrorCode:
    """Send a request through."""
    try:
        with gate.passing(controller_epoch, broker_epoch):
            return ErrorCode.NONE
    except KafkaError as error:
        return error.code


def test_an_older_controller_is_refused() -> None:
    """It was replaced, and does not know it yet."""
    gate = ControllerGate(lambda: 7)
    assert passes(gate, 2, 7) is ErrorCode.NONE
    assert passes(gate, 1, 7) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert passes(gate, 2, 7) is ErrorCode.NONE


@pytest.mark.parametrize(("broker_epoch", "expected"), [(6, 77), (7, 0), (8, 0), (-1, 0)])
def test_what_was_meant_for_an_earlier_life_is_refused(broker_epoch: int, expected: int) -> None:
    """Requests of controllers that know no broker epochs pass."""
    assert passes(ControllerGate(lambda: 7), 1, broker_epoch) == expected


@pytest.mark.parametrize(
    ("after_waiting", "broker_epoch", "expected"),
    [(9, 9, ErrorCode.NONE), (9, 7, ErrorCode.STALE_BROKER_EPOCH), (None, 7, ErrorCode.STALE_BROKER_EPOCH)],
)
def test_nothing_passes_before_the_broker_is_registered(
    after_waiting: int | None, broker_epoch: int, expected: ErrorCode
) -> None:
    """The controller may know of a new life before the broker does; the old one is over all the same."""
    life = Life(-1, after_waiting)
    assert passes(ControllerGate(lambda: life.epoch, life.wait), 1, broker_epoch) is expected
