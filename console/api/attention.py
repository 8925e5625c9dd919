"""What needs attention now, from answers that the console has anyway; `doctor` looks deeper."""

from __future__ import annotations

from typing import Literal

import msgspec

from ottla.client.cli.health.disks import disk_finding
from ottla.client.cli.health.findings import Status
from ottla.console.cluster.view import ClusterState, LogDirs

_NAMED_MAX = 3


class Attention(msgspec.Struct, kw_only=True):
    """Something that is wrong, what to do about it, and the command that shows or does it."""

    severity: Literal["broken", "warning"]
    subject: str
    found: str
    advice: str = ""
    command: str = ""
    link: str = ""
    """The page of the console that shows more."""


def attention(state: ClusterState, log_dirs: LogDirs) -> list[Attention]:
    """Return what is wrong, the most urgent first."""
    found: list[Attention] = []
    if state.controller_id is None:
        found.append(
            Attention(
                severity="broken",
                subject="controller",
                found="There is no controller, so no leader can be elected.",
                advice="Check ZooKeeper.",
                command="ottla doctor",
                link="doctor",
            )
        )
    offline, lagging = _weak(state)
    if offline:
        found.append(
            Attention(
                severity="broken",
                subject="partitions",
                found=f"{_count(offline)} no leader: {_named(offline)}.",
                advice=_start(state),
                command="ottla cluster health",
                link="overview?state=offline",
            )
        )
    found += [
        Attention(
            severity="warning",
            subject=f"broker {broker_id}",
            found=f"Broker {broker_id} is down.",
            advice="Start it again; its replicas catch up by themselves.",
            command="ottla cluster brokers",
            link=f"brokers/{broker_id}",
        )
        for broker_id in state.dead_brokers
    ]
    if lagging:
        found.append(
            Attention(
                severity="warning",
                subject="partitions",
                found=f"{_count(lagging)} replicas that are not in sync: {_named(lagging)}.",
                advice=_start(state),
                command="ottla cluster health",
                link="overview?state=lagging",
            )
        )
    for log_dir in log_dirs.dirs:
        finding = disk_finding(log_dir)
        if finding.status is not Status.OK:
            found.append(
                Attention(
                    severity="broken" if finding.status is Status.BROKEN else "warning",
                    subject=finding.check,
                    found=finding.found,
                    advice=finding.advice,
                    command=finding.change,
                    link=f"brokers/{log_dir.broker_id}",
                )
            )
    return sorted(found, key=lambda each: each.severity != "broken")


def _weak(state: ClusterState) -> tuple[list[str], list[str]]:
    offline, lagging = [], []
    for topic in state.topics.values():
        for number, each in topic.partitions.items():
            if each.leader is None:
                offline.append(f"{topic.name}-{number}")
            elif len(each.isr) < len(each.replicas):
                lagging.append(f"{topic.name}-{number}")
    return offline, lagging


def _start(state: ClusterState) -> str:
    if not state.dead_brokers:
        return "Look at the logs of the brokers that lag behind."
    return f"Start broker {', '.join(map(str, state.dead_brokers))}."


def _count(names: list[str]) -> str:
    return "1 partition has" if len(names) == 1 else f"{len(names)} partitions have"


def _named(names: list[str]) -> str:
    return ", ".join(names[:_NAMED_MAX]) + (f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else "")
