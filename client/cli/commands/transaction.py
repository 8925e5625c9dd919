"""`ottla transaction`: transactional ids, the producers of partitions, and transactions that nobody ends."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Argument, Option
from ottla.client.cli.terminal.name_completion import complete_broker, complete_topic
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import YesOption
from ottla.client.cli.terminal.outcomes import show_outcomes, tell_errors
from ottla.client.cli.terminal.output import confirm, echo, say
from ottla.client.cli.terminal.target import Target, command
from ottla.client.cli.terminal.times import ago, local_time

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.admin.transaction_results import OpenTransaction, TransactionDescription
    from ottla.protocol.identifiers import TopicPartition

app = noun_app("transaction")


class State(StrEnum):
    """The states of a transactional id, by Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_OPEN: Final = (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)

_Ids = Annotated[list[str], Argument(metavar="ID...", help="Transactional ids.")]
_Broker = Annotated[
    int | None,
    Option(
        "--broker-id",
        "--broker",
        metavar="ID",
        shell_complete=complete_broker,
        help="Ask this broker for its replicas.",
        show_default="the leaders",
    ),
]


@command(app, "list")
def list_transactions(
    target: Target,
    states: Annotated[
        list[str] | None,
        Option("--state", metavar="STATE", help=f"Only ids in this state: {', '.join(State)}."),
    ] = None,
    older_than: Annotated[
        str | None,
        Option("--older-than", metavar="SPAN", help="Only transactions open for longer than this: 90s, 15m, 2h."),
    ] = None,
    duration_ms: Annotated[
        int | None, Option("--duration-ms", metavar="MS", min=0, help="The same, in milliseconds.")
    ] = None,
    producer_ids: Annotated[
        list[int] | None, Option("--producer-id", metavar="ID", help="Only this producer id; can be repeated.")
    ] = None,
) -> None:
    """List transactional ids and their states.

    Ongoing is a transaction that a producer writes. PrepareCommit and PrepareAbort are being ended by the coordinator.
    With --older-than, only these three are listed, unless --state names others.

    JSON: transactional_id, producer_id, state, coordinator.

    \b
    Examples:
      ottla transaction list
      ottla transaction list --state Ongoing --older-than 15m
      ottla transaction list --producer-id 4000 --format json
    """
    from ottla.client.cli.records.offsets import duration_ms as parsed_ms

    if older_than is not None and duration_ms is not None:
        raise CommandError("Use either --older-than or --duration-ms, not both.", 2)
    age_ms = duration_ms if older_than is None else parsed_ms(older_than)
    wanted = _states(states or ()) or ([] if age_ms is None else [*_OPEN])
    found = target.run(lambda admin: admin.list_transactions(wanted, producer_ids or (), age_ms))
    target.show(
        ("TRANSACTIONAL-ID", "PRODUCER-ID", "STATE", "COORDINATOR"),
        [(each.transactional_id, each.producer_id, each.state, each.coordinator) for each in found],
        [each.to_dict() for each in found],
    )


def _states(names: Sequence[str]) -> list[str]:
    known = {state.lower(): state.value for state in State}
    for name in names:
        if name.lower() not in known:
            raise CommandError(f"--state takes {', '.join(State)}, not {name!r}.", 2)
    return [known[name.lower()] for name in names]


@command(app)
def describe(target: Target, ids: _Ids) -> None:
    """Show the current or last transaction of transactional ids.

    Partitions are those in which the transaction still has to be ended.

    JSON: transactional_id, state, producer_id, producer_epoch, timeout_ms, start_time_ms (null if it never began one),
    coordinator, partitions (topic, partition), error.

    \b
    Examples:
      ottla transaction describe payments-1
      ottla transaction describe payments-1 payments-2 --format json
    """
    found = target.run(lambda admin: admin.describe_transactions(ids, raise_errors=False))
    if target.is_data:
        target.print_items(each.to_dict() for each in found)
    else:
        for number, each in enumerate(each for each in found if each.error is None):
            if number:
                echo()
            _print_description(target, each)
    tell_errors(found, is_change=False)


def _print_description(target: Target, found: TransactionDescription) -> None:
    from ottla.client.net.metadata import by_topic

    echo(f"transactional id:  {found.transactional_id}")
    echo(f"state:             {found.state}")
    echo(f"coordinator:       {found.coordinator}")
    echo(f"producer id:       {found.producer_id}")
    echo(f"producer epoch:    {found.producer_epoch}")
    echo(f"timeout:           {found.timeout_ms} ms")
    start_ms = found.start_time_ms
    echo(f"began:             {'never' if start_ms is None else f'{local_time(start_ms)}, {ago(start_ms)}'}")
    if found.partitions:
        echo()
        target.show(("TOPIC", "PARTITIONS"), list(by_topic(found.partitions).items()), ())


@command(app)
def producers(
    target: Target,
    place: Annotated[str, Argument(metavar="TOPIC[:PARTITION]", help="A topic, or one of its partitions.")],
    broker_id: _Broker = None,
) -> None:
    """Show the producers of partitions, and where their transactions start.

    Partitions remember producers that are idempotent or transactional, for a day after their last record. START-OFFSET
    is the first record of an open transaction.

    JSON: topic, partition, producer_id, producer_epoch, last_sequence, last_timestamp, coordinator_epoch,
    transaction_start_offset (null if no transaction is open).

    \b
    Examples:
      ottla transaction producers orders
      ottla transaction producers orders:0
      ottla transaction producers orders:0 --broker-id 2
    """
    from ottla.client.cli.records.offsets import partitions_of

    topic, number = _place(place)

    async def work(admin: Admin) -> Any:
        await _check_broker(admin, broker_id)
        partitions = await partitions_of(admin, topic, None if number is None else [number])
        return await admin.describe_producers(partitions, broker_id)

    items = [
        {"topic": each.topic, "partition": each.partition, **producer.to_dict()}
        for each in target.run(work)
        for producer in each.producers
    ]
    target.show(
        ("PARTITION", "PRODUCER-ID", "EPOCH", "SEQUENCE", "LAST-RECORD", "COORD-EPOCH", "START-OFFSET"),
        [
            (
                item["partition"],
                item["producer_id"],
                item["producer_epoch"],
                item["last_sequence"],
                _ago(item["last_timestamp"]),
                item["coordinator_epoch"],
                item["transaction_start_offset"],
            )
            for item in items
        ],
        items,
    )


@command(app)
def find_hanging(
    target: Target,
    topics: Annotated[
        list[str] | None,
        Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            shell_complete=complete_topic,
            help="Only this topic; can be repeated.",
            show_default="all",
        ),
    ] = None,
    broker_id: _Broker = None,
    max_transaction_timeout: Annotated[
        str,
        Option(
            metavar="SPAN", help="Only transactions without a record for longer than this: transaction.max.timeout.ms."
        ),
    ] = "15m",
) -> None:
    """Find open transactions that no coordinator will ever end.

    They hold back consumers that read committed records; `ottla transaction abort` ends them. You need the right to
    describe all transactional ids: transactions of ids that you may not see look as if they hung.

    JSON: topic, partition, producer_id, producer_epoch, coordinator_epoch, start_offset, last_timestamp, is_hanging,
    transactional_id, state, start_time_ms, timeout_ms (these four are null if no id has the producer id), error.

    \b
    Examples:
      ottla transaction find-hanging
      ottla transaction find-hanging --topic orders
      ottla transaction find-hanging --broker-id 2 --max-transaction-timeout 1h
    """
    from ottla.client.cli.health.transactions import abort_line
    from ottla.client.cli.records.offsets import duration_ms

    timeout_ms = duration_ms(max_transaction_timeout)

    async def work(admin: Admin) -> tuple[OpenTransaction, ...]:
        await _check_broker(admin, broker_id)
        return await admin.find_hanging_transactions(
            topics or None, broker_id=broker_id, max_transaction_timeout_ms=timeout_ms, raise_errors=False
        )

    found = target.run(work)
    hanging = [each for each in found if each.error is None]
    if hanging or target.is_data:
        target.show(
            ("PARTITION", "PRODUCER-ID", "EPOCH", "START-OFFSET", "LAST-RECORD", "TRANSACTIONAL-ID"),
            [
                (
                    f"{each.topic}:{each.partition}",
                    each.producer_id,
                    each.producer_epoch,
                    each.start_offset,
                    _ago(each.last_timestamp),
                    each.transactional_id,
                )
                for each in hanging
            ],
            [each.to_dict() for each in found],
        )
    if hanging and not target.is_data:
        say(f"\nTo end the first one: {abort_line(hanging[0])}")
    if not found and not target.is_data:
        say("No transaction hangs.")
    tell_errors(found, is_change=False)


@command(app)
def abort(
    target: Target,
    place: Annotated[str, Argument(metavar="TOPIC:PARTITION", help="Where the transaction hangs.")],
    start_offset: Annotated[
        int | None, Option("--start-offset", min=0, metavar="OFFSET", help="Where the transaction starts.")
    ] = None,
    producer_id: Annotated[
        int | None, Option("--producer-id", min=0, metavar="ID", help="Or: the producer that has opened it.")
    ] = None,
    producer_epoch: Annotated[
        int | None, Option("--producer-epoch", min=0, metavar="EPOCH", help="The epoch of this producer.")
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        Option("--coordinator-epoch", min=0, metavar="EPOCH", help="The coordinator's epoch for the marker."),
    ] = None,
    force: Annotated[
        bool, Option("--force", help="Also if a coordinator knows it. IT MAY BE COMMITTED IN OTHER PARTITIONS.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Abort a transaction that hangs, in one partition. `find-hanging` shows the offset where it starts.

    A transaction that its coordinator will end is refused: `fence` aborts it in all its partitions. The transaction is
    looked up by its start or by its producer. With all three numbers of --producer-id, --producer-epoch and
    --coordinator-epoch, nothing is looked up, for brokers older than Kafka 2.8.

    JSON: topic, partition, error.

    \b
    Examples:
      ottla transaction abort orders:0 --start-offset 17
      ottla transaction abort orders:0 --producer-id 4000 --yes
      ottla transaction abort orders:0 --producer-id 4000 --producer-epoch 3 --coordinator-epoch 0
    """
    from ottla.protocol.identifiers import TopicPartition

    topic, number = _place(place)
    if number is None:
        raise CommandError(f"Which partition? Write {topic}:0, for example.", 2)
    if (start_offset is None) == (producer_id is None):
        raise CommandError("Which transaction? Give either --start-offset or --producer-id.", 2)
    partition = TopicPartition(topic, number)
    if producer_id is None or producer_epoch is None or coordinator_epoch is None:
        found = target.run(lambda admin: _opened(admin, partition, start_offset, producer_id, producer_epoch))
        if not (found.is_hanging or force):
            name = found.transactional_id or ""
            raise CommandError(
                f"The coordinator knows this transaction of {name!r} ({found.state}), and will end it in all its "
                f"partitions. `ottla transaction fence {shlex.quote(name)}` aborts it at once if it is ongoing; "
                "--force aborts it in this partition alone."
            )
        producer_id, producer_epoch = found.producer_id, found.producer_epoch
        coordinator_epoch = found.coordinator_epoch if coordinator_epoch is None else coordinator_epoch
    numbers = (producer_id, producer_epoch, coordinator_epoch)
    confirm(
        f"Abort the transaction of producer {producer_id} in {partition}? "
        "Consumers that read committed records will never see its records.",
        yes,
    )
    outcome = target.change(lambda admin: admin.abort_transaction(partition, *numbers, raise_errors=False))
    show_outcomes(target, "PARTITION", [(str(partition), outcome)], "aborted")


@command(app)
def fence(target: Target, ids: _Ids, yes: YesOption = False) -> None:
    """Abort open transactions, and shut out their producers.

    A producer that is shut out fails with PRODUCER_FENCED or INVALID_PRODUCER_EPOCH, and has to start again.

    JSON: transactional_id, producer_id, producer_epoch, error.

    \b
    Examples:
      ottla transaction fence payments-1
      ottla transaction fence payments-1 payments-2 --yes
    """
    # A coordinator would create an id that does not exist.
    target.run(lambda admin: admin.describe_transactions(ids))
    confirm(f"Shut out the producers of {', '.join(ids)}, and abort what they have begun?", yes)
    found = target.change(lambda admin: admin.fence_producers(ids, raise_errors=False))
    show_outcomes(target, "TRANSACTIONAL-ID", [(each.transactional_id, each) for each in found], "fenced")


async def _opened(
    admin: Admin,
    partition: TopicPartition,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
) -> OpenTransaction:
    """Return the open transaction with this start, or of this producer; CommandError if there is none."""
    from ottla.client.cli.records.offsets import partitions_of

    await partitions_of(admin, partition.topic, [partition.partition])
    for each in await admin.list_open_transactions([partition]):
        is_its = each.start_offset == start_offset if producer_id is None else each.producer_id == producer_id
        if is_its and producer_epoch in (None, each.producer_epoch):
            return each
    which = f"that starts at offset {start_offset}" if producer_id is None else f"of producer {producer_id}"
    epoch = "" if producer_epoch is None else f" with epoch {producer_epoch}"
    place = f"{partition.topic}:{partition.partition}"
    raise CommandError(
        f"{partition} has no open transaction {which}{epoch}; `ottla transaction producers {place}` shows what is open."
    )


def _place(text: str) -> tuple[str, int | None]:
    topic, colon, number = text.partition(":")
    if not topic or (colon and not (number.isascii() and number.isdigit())):
        raise CommandError(f"{text!r} is not a partition: write TOPIC:PARTITION, such as orders:0.", 2)
    return topic, int(number) if colon else None


async def _check_broker(admin: Admin, broker_id: int | None) -> None:
    if broker_id is None:
        return
    known = [each.broker_id for each in (await admin.describe_cluster()).brokers]
    if broker_id not in known:
        raise CommandError(f"There is no broker {broker_id}; the live brokers are {', '.join(map(str, known))}.")


def _ago(time_ms: int | None) -> str | None:
    return None if time_ms is None else ago(time_ms)
