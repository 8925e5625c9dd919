"""Restart the brokers of a local cluster one at a time, while it serves.

A broker is stopped only when all replicas of all partitions are in sync and it is safe to stop; the next one follows
when the replicas of this one have caught up. The controller is last, so that it moves once. Brokers that are not
running are started first. Whatever goes wrong ends the restart, with at most one broker down because of it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.client.cli.health.health import examine
from ottla.client.cli.health.safe_to_stop import ask_safe_to_stop, named
from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.target import Target
from ottla.client.local_cluster.errors import ClusterError
from ottla.client.local_cluster.local_cluster import LocalCluster
from ottla.client.local_cluster.record import ProcessRecord
from ottla.client.local_cluster.restart_mark import RestartMark, new_mark, read_mark, remove_mark, write_mark

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin

T = TypeVar("T")

_POLL_S: Final = 0.5
_TOLD_EVERY_S: Final = 10.0
_ANSWER_TIMEOUT_S: Final = 15.0
# An older restart is not continued: brokers may have been upgraded since.
_CONTINUED_MS_MAX: Final = 60 * 60 * 1000


# The exit code after Ctrl-C.
_INTERRUPTED: Final = 130


class RestartStoppedError(CommandError):
    """The restart has ended before all brokers were restarted; it can be continued."""


class _NotYetError(Exception):
    """A broker must not be stopped after all."""


@dataclass(frozen=True, slots=True)
class RestartedBroker:
    """A broker that was restarted: how long it was down, and until its replicas were in sync."""

    broker_id: int
    pid: int | None
    down_s: float
    in_sync_s: float


class RollingRestart:
    """Restarts the brokers of a cluster. `pause` waits, and returns whether the user wants to stop."""

    def __init__(
        self,
        cluster: LocalCluster,
        *,
        report: Callable[[str], None],
        pause: Callable[[float], bool],
        timeout_s: float,
        allow_unreplicated: bool = False,
    ) -> None:
        self._cluster = cluster
        self._report = report
        self._pause = pause
        self._timeout_s = timeout_s
        self._allow_unreplicated = allow_unreplicated
        record = cluster.record()
        files = cluster.directory.security
        self._target = Target(
            record.bootstrap_servers, files.client_properties if record.secure else None, timeout_s=_ANSWER_TIMEOUT_S
        )
        self.restarted: list[RestartedBroker] = []

    def run(self, *, continued: bool = True) -> None:
        """Restart all brokers, or those that an interrupted restart has left; RestartStoppedError if it must stop."""
        brokers = self._cluster.record().brokers
        if not any(each.is_running() for each in brokers):
            raise CommandError(f"No broker in {self._cluster.directory.path} is running. Start them with: ottla up")
        mark = self._mark(brokers, continued=continued)
        try:
            for broker in brokers:
                if not broker.is_running():
                    self._start(broker)
            while left := self._left(mark):
                broker = self._next(left)
                if self._pause(0):
                    raise RestartStoppedError(f"{broker.name} was not restarted: you asked to stop.", _INTERRUPTED)
                self._report(f"{broker.name}: waiting until it is safe to stop ({len(left)} left to restart)")
                self._restart(broker)
            self._wait("All brokers were restarted", self._out_of_sync)
        except RestartStoppedError:
            raise
        except (ClusterError, CommandError) as error:
            raise RestartStoppedError(str(error)) from error
        remove_mark(self._cluster.directory)
        self._elect()

    def _elect(self) -> None:
        """Give the leaders back to the brokers that had them; that is not worth a failure."""
        try:
            elected = self._ask(lambda admin: admin.elect_leaders(raise_errors=False))
        except CommandError as error:
            self._report(f"The leaders are not where they were: {error}\nMove them with: ottla partition elect")
            return
        moved = sum(each.is_elected for each in elected)
        self._report(f"Leaders that moved back to their preferred brokers: {moved}")

    def _mark(self, brokers: list[ProcessRecord], *, continued: bool) -> RestartMark:
        now_ms = int(time.time() * 1000)
        found = read_mark(self._cluster.directory) if continued else None
        if found is not None and 0 <= now_ms - found.began_ms < _CONTINUED_MS_MAX:
            done = [each.id for each in brokers if found.is_done(each)]
            if 0 < len(done) < len(brokers):
                began = time.strftime("%H:%M:%S", time.localtime(found.began_ms / 1000))
                self._report(
                    f"Continuing the restart that began at {began}: {_brokers(done)} done. --from-start restarts all."
                )
                return found
        mark = new_mark(brokers, now_ms)
        write_mark(self._cluster.directory, mark)
        return mark

    def _left(self, mark: RestartMark) -> list[ProcessRecord]:
        return [each for each in self._cluster.record().brokers if not mark.is_done(each)]

    def _next(self, left: list[ProcessRecord]) -> ProcessRecord:
        """Return the next broker by id; the controller is last."""
        if len(left) == 1:
            return left[0]
        controller = self._ask(lambda admin: admin.describe_cluster()).controller_id
        return min(left, key=lambda each: (each.id == controller, each.id))

    def _start(self, broker: ProcessRecord) -> None:
        """Start a broker that is not running, unless another command has."""

        def may_stop() -> None:
            raise _NotYetError

        self._report(f"{broker.name} is not running, and is started")
        with suppress(_NotYetError):
            self._cluster.restart(broker.id, may_stop)

    def _restart(self, broker: ProcessRecord) -> None:
        """Restart a broker when it is safe, and wait for its replicas; return if another command has restarted it."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            self._wait(f"{broker.name} was not restarted", lambda: self._why_not_stop(broker.id), deadline)
            stopped_at = time.monotonic()
            try:
                started = self._cluster.restart(broker.id, lambda: self._check_may_stop(broker))
            except _NotYetError as error:
                if self._process(broker.id).pid != broker.pid:
                    return
                if time.monotonic() > deadline:
                    raise RestartStoppedError(f"{broker.name} was not restarted: it is not safe to stop.") from error
                continue
            break
        ready_at = time.monotonic()
        self._wait(f"{broker.name} was restarted", self._out_of_sync)
        in_sync_at = time.monotonic()
        self._report(f"{broker.name} is in sync again, {in_sync_at - ready_at:.1f} s after its start")
        self.restarted.append(
            RestartedBroker(broker.id, started.pid, round(ready_at - stopped_at, 1), round(in_sync_at - stopped_at, 1))
        )

    def _check_may_stop(self, broker: ProcessRecord) -> None:
        """Raise _NotYetError unless the broker may be stopped now: another command may have been faster."""
        if self._process(broker.id).pid != broker.pid:
            raise _NotYetError
        try:
            why = self._why_not_stop(broker.id)
        except RestartStoppedError:
            raise
        except CommandError as error:
            raise _NotYetError from error
        if why is not None:
            raise _NotYetError

    def _process(self, broker_id: int) -> ProcessRecord:
        return next(each for each in self._cluster.record().brokers if each.id == broker_id)

    def _why_not_stop(self, broker_id: int) -> str | None:
        """Return why a broker must not be stopped at the moment; RestartStoppedError if waiting does not help."""
        if (why := self._out_of_sync()) is not None:
            return why

        async def ask(admin: Admin) -> tuple[str | None, bool]:
            found = await ask_safe_to_stop(admin, broker_id, allow_unreplicated=self._allow_unreplicated)
            if found.is_safe:
                return None, False
            lenient = await ask_safe_to_stop(admin, broker_id, allow_unreplicated=True)
            return " ".join(found.reasons), lenient.is_safe

        why, is_lasting = self._ask(ask)
        if is_lasting:
            raise RestartStoppedError(
                f"Broker {broker_id} is not safe to stop: {why}\nAdd replicas, or accept that these partitions are not "
                "available while it restarts: --allow-unreplicated"
            )
        return why

    def _out_of_sync(self) -> str | None:
        """Return which replicas are not in sync; None if all are, and all brokers are members of the cluster."""
        found = self._ask(examine)
        absent = {each.id for each in self._cluster.record().brokers}.union(found.missing_brokers) - set(found.brokers)
        if found.controller_id is None:
            return "there is no controller"
        if absent:
            return f"not in the cluster: broker {named(sorted(absent))}"
        weak = [f"{each.topic}-{each.partition}" for each in (*found.offline, *found.under_replicated)]
        return f"not all replicas are in sync: {named(weak)}" if weak else None

    def _wait(self, state: str, why_not: Callable[[], str | None], deadline: float | None = None) -> None:
        """Ask until there is no reason left; RestartStoppedError after the deadline, or if a broker dies."""
        deadline = time.monotonic() + self._timeout_s if deadline is None else deadline
        told_at = time.monotonic()
        while True:
            self._check_processes(state)
            try:
                why = why_not()
            except RestartStoppedError:
                raise
            except CommandError as error:
                why = str(error).splitlines()[0]
            if why is None:
                return
            now = time.monotonic()
            if now > deadline:
                raise RestartStoppedError(f"{state}: after {self._timeout_s:g} s, {why}.")
            if now - told_at > _TOLD_EVERY_S:
                told_at = now
                self._report(f"  still waiting: {why}")
            if self._pause(_POLL_S):
                raise RestartStoppedError(f"{state}: you asked to stop.", _INTERRUPTED)

    def _check_processes(self, state: str) -> None:
        """Raise RestartStoppedError if a broker is not running, whoever stopped it."""
        gone = [each for each in self._cluster.record().brokers if not each.is_running()]
        if not gone:
            return
        how = "was stopped by another command" if gone[0].stopping or gone[0].pid is None else "died"
        raise RestartStoppedError(
            f"{state}, then {gone[0].name} {how}. Its log: {self._cluster.directory.log(gone[0])}"
        )

    def _ask(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        return self._target.run(work)


def _brokers(ids: list[int]) -> str:
    return f"broker {ids[0]} is" if len(ids) == 1 else f"brokers {named(ids)} are"
