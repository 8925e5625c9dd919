"""The largest requests of a client without any right: each costs the broker little time and little memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs
from tests.hostile.attacked import AttackedBroker, attacked_broker
from tests.hostile.largest import Shape, largest, shapes
from tests.kit.garbage import keep_out_of_sight

from ottla.broker.app.server import calm_garbage_collector
from ottla.broker.config import BrokerConfig
from ottla.broker.handlers.table import HANDLERS
from ottla.protocol.api import Api

MIB = 1024 * 1024
CONFIG = BrokerConfig.of({})
REQUEST_BYTES_MAX = CONFIG.ottla_request_max_bytes
ENTRIES_MAX = CONFIG.ottla_request_max_entries
# Of a processor, for one request. Most take a fraction of it.
SECONDS_MAX = 1.0
# Other work on the machine makes a request dearer now and then; a loop within a loop does so always.
TRIES_MAX = 3
# Enough to tell a loop within a loop, which takes seconds for so many, from one that is not.
ENTRIES_QUICK = 10_000
# For an entry: decoded, handled and answered. As many as are allowed take 125 MiB then, and a worker has one request.
# Python 3.13 needs a tenth more than 3.11.
ENTRY_BYTES_MAX = 2_000


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedBroker]:
    """A broker on which nobody has a right, with the garbage collector as brokers have it."""
    thresholds = gc.get_threshold()
    with capture_logs(), attacked_broker(tmp_path_factory.mktemp("broker")) as broker:
        calm_garbage_collector()
        yield broker
    keep_out_of_sight()
    gc.set_threshold(*thresholds)


def take(attacked: AttackedBroker, api: Api, version: int, shape: Shape, frame: bytes) -> None:
    """Send a request of a shape, and see that it ends, and soon."""
    seconds = float("inf")
    for _ in range(TRIES_MAX):
        cost = attacked.take(frame)
        is_ended = cost.ended.answer is not None or cost.ended.closed is not None
        assert is_ended or api in (Api.METADATA, Api.FIND_COORDINATOR), f"{api.label} {version}, {shape}: no end"
        seconds = min(seconds, cost.seconds)
        if seconds < SECONDS_MAX:
            return
    raise AssertionError(f"{api.label} {version}, {shape}, {len(frame)} bytes: {seconds:.2f} s")


@pytest.mark.parametrize("api", HANDLERS, ids=lambda api: api.label)
def test_requests_take_time_in_proportion_to_their_entries(attacked: AttackedBroker, api: Api) -> None:
    """Every list and every text of the newest version, with thousands of entries, or a megabyte."""
    for shape in shapes(api, api.versions.last):
        frame = largest(api, api.versions.last, shape, MIB, entries_max=ENTRIES_QUICK)
        take(attacked, api, api.versions.last, shape, frame)


@pytest.mark.long
@pytest.mark.parametrize("fill", [0, 0xFF])
@pytest.mark.parametrize("api", HANDLERS, ids=lambda api: api.label)
def test_the_largest_requests_of_all_versions_take_a_second_at_most(
    attacked: AttackedBroker, api: Api, fill: int
) -> None:
    """With as many entries as are allowed, and with numbers that are all 0 or, in the first and last one, all -1."""
    versions = range(api.versions.first, api.versions.last + 1)
    for version in versions if fill == 0 else {versions[0], versions[-1]}:
        for shape in shapes(api, version):
            frame = largest(api, version, shape, REQUEST_BYTES_MAX, entries_max=ENTRIES_MAX, fill=fill)
            take(attacked, api, version, shape, frame)


@pytest.mark.parametrize("api", [Api.METADATA, Api.PRODUCE, Api.FETCH, Api.JOIN_GROUP], ids=lambda api: api.label)
@pytest.mark.parametrize("kind", ["duplicates", "tags"])
def test_more_entries_than_allowed_are_not_even_read(attacked: AttackedBroker, api: Api, kind: str) -> None:
    """As many as fit in a large frame: refused by their number, before an object is created."""
    version = api.versions.last
    shape = next(each for each in shapes(api, version) if each.kind == kind)
    frame = largest(api, version, shape, 4 * MIB)
    cost = attacked.take(frame)
    assert cost.ended.closed is not None, f"{api.label} {version}, {shape}: {len(frame)} bytes were taken"
    assert "more entries than this side allows" in cost.ended.closed
    assert cost.seconds < SECONDS_MAX / 5, f"{api.label} {version}, {shape}: {cost.seconds:.2f} s"


@pytest.mark.parametrize("api", HANDLERS, ids=lambda api: api.label)
def test_a_text_longer_than_kafka_allows_is_refused(attacked: AttackedBroker, api: Api) -> None:
    """In the flexible encoding, wherever it is."""
    version = api.versions.last
    for shape in shapes(api, version):
        if shape.kind == "one text":
            cost = attacked.take(largest(api, version, shape, 40_000))
            assert cost.ended.closed is not None, f"{api.label} {version}, {shape}: it was taken"
            assert "longer than 32767" in cost.ended.closed


@pytest.mark.parametrize("api", [Api.METADATA, Api.PRODUCE, Api.FETCH, Api.CREATE_TOPICS, Api.DESCRIBE_CONFIGS])
@pytest.mark.parametrize("kind", ["duplicates", "names", "texts"])
def test_a_request_takes_bounded_memory(attacked: AttackedBroker, api: Api, kind: str) -> None:
    """In proportion to its entries, and to its bytes: texts are copied when they are decoded and when they are sent."""
    version = api.versions.last
    shape = next((each for each in shapes(api, version) if each.kind == kind), None)
    if shape is not None:
        frame = largest(api, version, shape, MIB, entries_max=5_000)
        peak = attacked.peak_bytes(frame)
        assert peak < 5_000 * ENTRY_BYTES_MAX + 8 * len(frame), f"{api.label} {version}, {shape}: {peak / MIB:.1f} MiB"


def test_names_of_strangers_are_not_remembered(attacked: AttackedBroker) -> None:
    """Ten requests full of long names leave next to nothing behind."""
    shape = Shape("texts", ("topics",))
    frame = largest(Api.METADATA, 12, shape, 2 * MIB)
    kept = attacked.kept_bytes(frame, times=10)
    assert kept < MIB // 4, f"{kept / MIB:.1f} MiB are kept of {10 * len(frame) / MIB:.0f} MiB"
