"""`ottla bench`: how fast a cluster is, as this client sees it from this host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Argument, Option
from ottla.client.cli.terminal.name_completion import complete_topic
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.progress import progress
from ottla.client.cli.terminal.target import Target, command, run

if TYPE_CHECKING:
    from ottla.client.cli.records.measuring import Load, Measured

app = noun_app("bench")

_RECORDS_DEFAULT: Final = 100_000
_PACED_RECORDS_DEFAULT: Final = 1_000
_PACED_RATE_DEFAULT: Final = 200.0
_ACKS: Final = {"all": "all", "-1": "all", "1": 1, "0": 0}

_Topic = Annotated[str, Argument(metavar="TOPIC", shell_complete=complete_topic, help="Name of the topic.")]
_Records = Annotated[
    int | None,
    Option("--records", "-n", min=1, max=1_000_000_000, metavar="N", help="Stop after this many records."),
]
_Seconds = Annotated[float | None, Option("--seconds", min=0.01, metavar="S", help="Stop after this time.")]
_Size = Annotated[int, Option("--size", "-s", min=16, max=16_777_216, metavar="BYTES", help="Size of each value.")]
_Rate = Annotated[
    float | None, Option("--rate", min=0.01, metavar="N", help="Records per second.", show_default="no limit")
]
_Acks = Annotated[str, Option("--acks", metavar="all|1|0", help="Replicas to wait for.")]


@command(app)
def produce(
    target: Target,
    topic: _Topic,
    records: _Records = None,
    size: _Size = 100,
    rate: _Rate = None,
    seconds: _Seconds = None,
    acks: _Acks = "all",
) -> None:
    """Write records: 100,000 by default, or as set by --records and --seconds. The records stay in the topic.

    With --rate, the latency of a record counts from the time it was due. Without it, one record in fifty is timed.

    JSON: topic, records, bytes, seconds, records_per_s, mb_per_s, latency_ms (p50, p95, p99, p99_9, max: from when a
    record was due until it was acknowledged).

    \b
    Examples:
      ottla bench produce scratch
      ottla bench produce scratch --rate 1000 --seconds 30 --size 1024 --acks 1
    """
    from ottla.client.cli.records.measuring import measure_produce
    from ottla.client.producer.settings import ProducerSettings

    load = _load(records, seconds, size, rate, _RECORDS_DEFAULT)
    linger = {} if rate else {"linger_ms": 5}
    settings = linger | target.settings(ProducerSettings) | {"acks": _checked_acks(acks)}
    with progress("writing", load.records) as tell:
        measured = run(lambda: measure_produce(settings, topic, load, tell))
    _show(target, measured)


@command(app)
def consume(target: Target, topic: _Topic, records: _Records = None, seconds: _Seconds = None) -> None:
    """Read a topic from its start to its current end, without a group.

    JSON: topic, records, bytes, seconds, records_per_s, mb_per_s, latency_ms (null: `bench e2e` measures it).

    \b
    Examples:
      ottla bench consume scratch
      ottla bench consume scratch --records 1000000 --format json
    """
    from ottla.client.cli.records.measuring import measure_consume
    from ottla.client.consumer.settings import ConsumerSettings

    settings = target.settings(ConsumerSettings)
    with progress("reading", records) as tell:
        measured = run(lambda: measure_consume(settings, topic, records, seconds, tell))
    _show(target, measured)


@command(app)
def e2e(
    target: Target,
    topic: _Topic,
    records: _Records = None,
    size: _Size = 100,
    rate: _Rate = _PACED_RATE_DEFAULT,
    seconds: _Seconds = None,
    acks: _Acks = "all",
) -> None:
    """Write records and read them back: by default 1,000 of them at 200 per second.

    JSON: topic, records, bytes, seconds, records_per_s, mb_per_s, latency_ms (p50, p95, p99, p99_9, max: from when a
    record was due until a consumer had it).

    \b
    Examples:
      ottla bench e2e scratch
      ottla bench e2e scratch --rate 5000 --seconds 60 --format json
    """
    from ottla.client.cli.records.measuring import measure_end_to_end
    from ottla.client.net.settings import ClientSettings

    load = _load(records, seconds, size, rate, _PACED_RECORDS_DEFAULT)
    settings, options = target.settings(ClientSettings), {"acks": _checked_acks(acks)}
    with progress("writing and reading", load.records) as tell:
        measured = run(lambda: measure_end_to_end(settings, options, topic, load, tell))
    _show(target, measured)


def _load(records: int | None, seconds: float | None, size: int, rate: float | None, default: int) -> Load:
    from ottla.client.cli.records.measuring import Load

    return Load(default if records is None and seconds is None else records, seconds, size, rate)


def _checked_acks(text: str) -> Any:
    if text not in _ACKS:
        raise CommandError(f"--acks takes all, 1 or 0, not {text!r}", 2)
    return _ACKS[text]


def _show(target: Target, measured: Measured) -> None:
    if target.is_data:
        target.print_items([measured.to_dict()])
        return
    latency = measured.latency_ms or {}
    headings = [
        "RECORDS",
        "SECONDS",
        "RECORDS/S",
        "MB/S",
        *(f"{name.upper().replace('_', '.')}-MS" for name in latency),
    ]
    row = [measured.records, measured.seconds, measured.records_per_s, measured.mb_per_s, *latency.values()]
    target.show(headings, [row], ())
