"""Totals, rates, averages and maxima of the last minute."""

from __future__ import annotations

from tests.kit.clock import FakeClock

from ottla.client.net.sensor import WINDOW_S, Sensor


def test_a_sensor_without_numbers_has_zeros() -> None:
    """Not a division by zero."""
    sensor = Sensor(FakeClock(1000.0))

    assert (sensor.count, sensor.total, sensor.rate(), sensor.average(), sensor.highest()) == (0, 0, 0, 0, 0)


def test_rates_are_per_second() -> None:
    """The sum of the numbers, by the time since the first window began."""
    clock = FakeClock(1000.0)
    sensor = Sensor(clock)
    for number in (10, 20, 30):
        sensor.record(number)
    clock.now += 10

    assert (sensor.rate(), sensor.average(), sensor.highest()) == (6, 20, 30)


def test_what_was_long_ago_counts_only_in_totals() -> None:
    """Two windows count; a pause that is longer than both leaves nothing but the totals."""
    clock = FakeClock(1000.0)
    sensor = Sensor(clock)
    sensor.record(100)
    clock.now += WINDOW_S
    sensor.record(50)
    assert (sensor.average(), sensor.highest()) == (75, 100)

    clock.now += WINDOW_S
    sensor.record(10)
    assert (sensor.average(), sensor.highest()) == (30, 50)

    clock.now += 3 * WINDOW_S
    assert (sensor.rate(), sensor.average(), sensor.highest()) == (0, 0, 0)
    assert (sensor.count, sensor.total) == (3, 160)
