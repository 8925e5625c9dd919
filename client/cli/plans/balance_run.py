"""How a plan is shown, carried out and followed, for `cluster balance` and `broker drain`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from ottla.client.cli.plans.balancing import (
    MeasuredCluster,
    MoveState,
    broker_rows,
    move_states,
    plan_item,
    seconds_at,
)
from ottla.client.cli.plans.throttling import remove_throttles, throttles
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.output import confirm, echo, say
from ottla.client.cli.terminal.progress import progress
from ottla.client.cli.terminal.sizes import human_bytes, read_bytes
from ottla.client.cli.terminal.target import Target
from ottla.client.errors import KafkaError

if TYPE_CHECKING:
    from ottla.balance.plan import BalancePlan
    from ottla.client.admin.admin import Admin
    from ottla.protocol.identifiers import TopicPartition

# A longer list does not help the reader.
_ROWS_MAX: Final = 20
_LOOK_SECONDS: Final = 1.0
# The cluster may be without a controller for a while; the moves go on when there is one.
_FAILURES_MAX: Final = 60


def show_plan(target: Target, plan: BalancePlan, *, is_dry_run: bool) -> None:
    """Print a plan: what moves, and what brokers have before and after."""
    if target.is_data:
        target.print_items([{"is_dry_run": is_dry_run, **plan_item(plan)}])
        return
    rows = [
        (str(move.partition), move.replicas, move.target, human_bytes(move.copied_bytes) if move.added else "-")
        for move in plan.moves[:_ROWS_MAX]
    ]
    if rows:
        target.show(("PARTITION", "REPLICAS", "TARGET", "COPIES"), rows, ())
        if len(plan.moves) > len(rows):
            echo(f"... and {len(plan.moves) - len(rows)} more; --format json shows all.")
        echo()
    target.show(
        ("BROKER", "LEADERS", "REPLICAS", "SIZE", "WRITES/S"),
        [
            (
                broker,
                _change(before.leaders, after.leaders),
                _change(before.replicas, after.replicas),
                _change(human_bytes(before.size_bytes), human_bytes(after.size_bytes)),
                _change(human_bytes(before.bytes_per_second), human_bytes(after.bytes_per_second)),
            )
            for broker, before, after in broker_rows(plan.before(), plan.after())
        ],
        (),
    )
    echo()
    if plan.moves:
        echo(
            f"To copy: {counted(plan.copied_replicas, 'replica')}, {human_bytes(plan.copied_bytes)}. "
            f"New leaders: {counted(plan.leader_changes, 'partition')}."
        )


def carry_out(
    target: Target,
    cluster: MeasuredCluster,
    plan: BalancePlan,
    *,
    question: str,
    before: Callable[[], None] = lambda: None,
    throttle: str | None,
    moves: int,
    is_detached: bool,
    yes: bool,
) -> None:
    """Ask, start the moves of a plan after `before`, and follow them to their end."""
    rate = 0 if throttle is None else read_bytes(throttle, "--throttle")
    if rate and plan.copied_bytes and not target.is_data:
        echo(f"At {human_bytes(rate)}/s for each broker, this takes at least {_duration(seconds_at(plan, rate))}.")
    if rate and plan.traffic_to_receivers >= rate:
        say(
            f"Warning: producers write {human_bytes(plan.traffic_to_receivers)}/s to partitions that one broker gets. "
            "With a lower --throttle the copies never catch up."
        )
    confirm(question, yes)
    before()
    now = {move.partition: move.replicas for move in plan.moves}
    wanted = {move.partition: move.target for move in plan.moves}
    sets_throttle = bool(rate and not cluster.is_ottla)

    async def start(admin: Admin) -> int:
        # A controller of Apache Kafka leaves throttles to its tools, and starts everything at once.
        if sets_throttle:
            await admin.alter_configs(throttles(now, wanted, rate))
        found = await admin.alter_partition_reassignments(
            wanted, moves_per_broker=moves, bytes_per_second=rate, raise_errors=False
        )
        failed = [each for each in found if each.error is not None]
        for each in failed[:_ROWS_MAX]:
            say(f"{each.topic}-{each.partition} does not move: {each.error}")
        return len(failed)

    failed = target.change(start) if wanted else 0
    chosen = {*wanted, *cluster_partitions(cluster)}
    if chosen and is_detached:
        say("The moves go on by themselves; `ottla cluster balance --status` shows them.")
    elif chosen:
        if follow(target, chosen) and wanted and not cluster.is_ottla:
            # Controllers of Apache Kafka leave the leaders to their own timer.
            target.change(lambda admin: admin.elect_leaders(list(wanted), raise_errors=False))
        if sets_throttle:
            target.change(lambda admin: remove_throttles(admin, sorted({each.topic for each in wanted})))
    if failed:
        raise CommandError(f"{counted(failed, 'partition')} could not be moved.")


def cluster_partitions(cluster: MeasuredCluster) -> list[TopicPartition]:
    """Return the partitions that were moving before."""
    from ottla.protocol.identifiers import TopicPartition

    return [TopicPartition(each.topic, each.partition) for each in cluster.moving]


def follow(target: Target, chosen: Collection[TopicPartition]) -> bool:
    """Show how far moves are until they are done; return False if they go on without us."""

    async def watch(admin: Admin) -> bool:
        begun = time.monotonic()
        states = await move_states(admin)
        total = sum(each.total_bytes for each in _left(states, chosen))
        with progress("Copying", max(1, total), is_bytes=True) as tell:
            failures = 0
            while left := _left(states, chosen):
                tell(max(0, total - sum(each.total_bytes - each.copied_bytes for each in left)))
                await asyncio.sleep(_LOOK_SECONDS)
                try:
                    states = await move_states(admin)
                    failures = 0
                except KafkaError as error:
                    failures += 1
                    if failures > _FAILURES_MAX:
                        raise CommandError(
                            f"The cluster does not answer: {error}. The moves go on when it does; "
                            "`ottla cluster balance --status` shows them."
                        ) from error
        say(f"Done: {counted(len(chosen), 'partition')} moved in {_duration(time.monotonic() - begun)}.")
        return True

    try:
        return target.run(watch, is_endless=True)
    except KeyboardInterrupt:
        say("The moves go on; `ottla cluster balance --status` shows them, `--cancel` takes them back.")
        return False


def show_status(target: Target) -> None:
    """Print the moves that are not done."""
    states = target.run(move_states)
    if target.is_data:
        target.print_items([each.to_dict() for each in states])
        return
    if not states:
        echo("No partitions are moving.")
        return
    rows = [
        (
            f"{each.topic}-{each.partition}",
            each.state,
            each.replicas,
            each.target,
            f"{human_bytes(each.copied_bytes)} of {human_bytes(each.total_bytes)}",
        )
        for each in sorted(states, key=lambda each: (each.state, each.topic, each.partition))
    ]
    target.show(("PARTITION", "STATE", "REPLICAS", "TARGET", "COPIED"), rows[:_ROWS_MAX], ())
    if len(rows) > _ROWS_MAX:
        echo(f"... and {len(rows) - _ROWS_MAX} more; --format json shows all.")
    copied, total = sum(each.copied_bytes for each in states), sum(each.total_bytes for each in states)
    waiting = sum(each.state == "waiting" for each in states)
    echo()
    echo(
        f"{counted(len(states), 'partition')}, {waiting} of them waiting: "
        f"{human_bytes(copied)} of {human_bytes(total)} copied."
    )


def cancel_moves(target: Target, *, yes: bool, away_from: int | None = None) -> None:
    """Take back the moves that are not done: all, or those that take a replica from one broker."""
    from ottla.protocol.identifiers import TopicPartition

    found = target.run(lambda admin: admin.list_partition_reassignments())
    moving = [
        TopicPartition(each.topic, each.partition)
        for each in found
        if away_from is None or away_from in each.removing_replicas
    ]
    if not moving:
        if away_from is None:
            say("No partitions are moving.")
        return
    confirm(f"Cancel the move of {counted(len(moving), 'partition')}? Those that are done stay where they are.", yes)

    async def cancel(admin: Admin) -> int:
        outcomes = await admin.alter_partition_reassignments(dict.fromkeys(moving), raise_errors=False)
        await remove_throttles(admin, sorted({each.topic for each in moving}))
        # Those that were done in the meantime have nothing to cancel.
        return sum(each.error is None for each in outcomes)

    cancelled = target.change(cancel)
    say(f"Cancelled {counted(cancelled, 'move')}; what was copied for them is deleted.")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _left(states: Collection[MoveState], chosen: Collection[TopicPartition]) -> list[MoveState]:
    wanted = {(each.topic, each.partition) for each in chosen}
    return [each for each in states if (each.topic, each.partition) in wanted]


def _change(before: object, after: object) -> str:
    return str(before) if before == after else f"{before} → {after}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
