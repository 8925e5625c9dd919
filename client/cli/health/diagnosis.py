"""The checks of `ottla doctor`: each finding has advice and, if possible, the line to change."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ottla.client.admin.admin import Admin
from ottla.client.admin.results import BrokerDescription
from ottla.client.cli.health.advice import advice_for
from ottla.client.cli.health.clocks import compare_clocks
from ottla.client.cli.health.dialing import Dialed, DialVerdict, dial
from ottla.client.cli.health.disks import disk_finding, stuck_findings
from ottla.client.cli.health.findings import Finding, Status
from ottla.client.cli.health.health import Health, WeakPartition, examine
from ottla.client.cli.health.listeners import ADVERTISED, Behind, who_is_behind
from ottla.client.cli.health.min_isr import min_isr_by_topic
from ottla.client.cli.health.surroundings import KeptFree, kept_free_space, local_zookeeper, surroundings
from ottla.client.cli.health.transactions import examine_transactions
from ottla.client.cli.health.zookeeper_check import check_zookeeper, unknown_zookeeper
from ottla.client.errors import KafkaTimeoutError
from ottla.client.net.settings import ClientSettings, HostPort

_NAMED_MAX: Final = 3


async def diagnose(settings: ClientSettings, directory: Path, zookeeper: str | None = None) -> AsyncIterator[Finding]:
    """Check the given addresses first, then those that brokers advertise, then the cluster.

    The address of ZooKeeper comes from the caller, else from the brokers' options. If no broker answers, it comes from
    the cluster that `ottla up` made in the directory.
    """
    given = await asyncio.gather(*(dial(address, settings) for address in settings.addresses))
    for dialed in given:
        yield _bootstrap_finding(dialed, settings)
    doors = [each.address for each in given if each.is_broker]
    of_directory = local_zookeeper(directory, settings.addresses)
    if not doors:
        if connect := zookeeper or of_directory:
            yield await check_zookeeper(connect, is_local=connect == of_directory)
        return
    async with Admin(**_kwargs(settings, doors)) as admin:
        described = await admin.describe_cluster()
        behind = await asyncio.gather(*(who_is_behind(door, described.brokers, settings) for door in doors))
        known = {each.broker_id: each for each in behind if each is not None}
        brokers = [*described.brokers, *_unlisted(known, described.brokers)]
        reached = await asyncio.gather(*(dial(HostPort(each.host, each.port), settings) for each in brokers))
        for broker, dialed in zip(brokers, reached, strict=True):
            is_other = dialed.is_broker and dialed.cluster_id != described.cluster_id
            if dialed.is_broker and not is_other:
                yield Finding(Status.OK, _place(broker), dialed.verdict)
            else:
                found = f"another cluster answers there: {dialed.cluster_id}" if is_other else _said(dialed)
                yield _advertised_finding(broker, found, known.get(broker.broker_id), settings)
        health = await examine(admin)
        are_reached = all(each.is_broker for each in reached)
        yield _controller(health, are_reached)
        others = [
            broker
            for broker, dialed in zip(brokers, reached, strict=True)
            if dialed.is_broker and broker.broker_id not in known
        ]
        pages, connects = await _surroundings(_kwargs(settings, doors), known.values(), others, of_directory)
        for connect in [zookeeper] if zookeeper else connects:
            yield await check_zookeeper(connect, is_local=connect == of_directory) if connect else unknown_zookeeper()
        yield _leaders(health)
        yield await _replicas(admin, health)
        if are_reached:
            for finding in await examine_transactions(admin):
                yield finding
        yield await compare_clocks(described.brokers, pages)
        if are_reached:
            # With a connection of its own, as in `_surroundings`: the next request must not wait behind this one.
            async with Admin(**_kwargs(settings, doors)) as own:
                kept_free = await kept_free_space(own, [each.broker_id for each in described.brokers])
            for finding in await _disks(admin, kept_free):
                yield finding
            named = [address.host for address in settings.addresses]
            for finding in await stuck_findings(described.brokers, pages, named):
                yield finding


async def _surroundings(
    kwargs: dict[str, Any], known: Iterable[Behind], others: Sequence[BrokerDescription], of_directory: str | None
) -> tuple[dict[int, str], list[str]]:
    """Return the HTTP listeners and the ZooKeeper addresses in the brokers' options; "" where an option is not set."""
    pages = {each.broker_id: each.pages for each in known if each.pages}
    connects = {each.zookeeper for each in known if each.zookeeper}
    try:
        # A broker answers in order. The next request must not wait behind this one.
        async with Admin(**kwargs) as own:
            more_pages, zookeepers = await surroundings(own, others)
    except KafkaTimeoutError:
        return pages, sorted(connects) or [of_directory or ""]
    return pages | more_pages, sorted(connects | set(zookeepers.values()))


def _kwargs(settings: ClientSettings, doors: Sequence[HostPort]) -> dict[str, Any]:
    kwargs = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return kwargs | {"bootstrap_servers": [str(each) for each in doors]}


def _place(broker: BrokerDescription) -> str:
    return f"broker {broker.broker_id} at {HostPort(broker.host, broker.port)}"


def _said(dialed: Dialed) -> str:
    says_more = dialed.detail and dialed.verdict in (DialVerdict.FAILED, DialVerdict.MECHANISM)
    return f"{dialed.verdict}: {dialed.detail}" if says_more else str(dialed.verdict)


def _bootstrap_finding(dialed: Dialed, settings: ClientSettings) -> Finding:
    check = f"bootstrap server {dialed.address}"
    if dialed.is_broker:
        return Finding(Status.OK, check, dialed.verdict)
    advice, change = advice_for(dialed, settings)
    return Finding(Status.BROKEN, check, _said(dialed), advice, change)


def _unlisted(known: Mapping[int, Behind], listed: Sequence[BrokerDescription]) -> list[BrokerDescription]:
    """Return brokers that answer but are not in the metadata, which omits brokers that the controller cannot reach."""
    missing = set(known) - {each.broker_id for each in listed}
    return [
        BrokerDescription(broker_id, address.host, address.port, None)
        for broker_id in sorted(missing)
        for address in known[broker_id].addresses
    ]


def _advertised_finding(
    broker: BrokerDescription, found: str, behind: Behind | None, settings: ClientSettings
) -> Finding:
    """Return what is wrong with an address that a broker advertises, and what it should advertise instead."""
    wrong = HostPort(broker.host, broker.port)
    if behind is None:
        advice = (
            f"Clients are sent to {wrong}. If broker {broker.broker_id} is up, make it advertise an address that can "
            "be reached from here. In its server.properties:"
        )
        change = f"{ADVERTISED}={settings.security_protocol}://HOST:{broker.port}"
        return Finding(Status.BROKEN, _place(broker), found, advice, change)
    advice = f"It answers at {behind.door}, but sends clients to {wrong}. In its server.properties:"
    default = f"{settings.security_protocol}://{behind.door}"
    change = f"{ADVERTISED}={behind.corrected(wrong) or default}"
    return Finding(Status.BROKEN, _place(broker), found, advice, change)


def _controller(health: Health, are_reached: bool) -> Finding:
    if health.controller_id is not None:
        return Finding(Status.OK, "controller", f"broker {health.controller_id}")
    if not are_reached:
        advice = "Fix the addresses first: a broker that cannot be reached does not learn of the controller."
        return Finding(Status.BROKEN, "controller", "there is none", advice)
    advice = "Brokers elect one in ZooKeeper: check that it is running, and that all brokers have the same line."
    return Finding(Status.BROKEN, "controller", "there is none", advice, "zookeeper.connect=HOST:2181")


def _leaders(health: Health) -> Finding:
    if not health.offline:
        found = f"all {health.partitions} partitions have one" if health.partitions else "there are no partitions yet"
        return Finding(Status.OK, "leaders", found)
    found = f"{len(health.offline)} of {health.partitions} partitions have none: {_named(health.offline)}"
    brokers = sorted({broker for each in health.offline for broker in each.replicas})
    return Finding(Status.BROKEN, "leaders", found, f"Start a broker that has a replica: {_listed(brokers)}.")


async def _replicas(admin: Admin, health: Health) -> Finding:
    weak = health.under_replicated
    if not weak:
        return Finding(Status.OK, "replicas", "all are in sync")
    topics = sorted({each.topic for each in weak})
    isr_min = await min_isr_by_topic(admin, topics)
    refusing = [each for each in weak if len(each.isr) < min(isr_min.get(each.topic, 1), len(each.replicas))]
    missing = _listed(health.missing_brokers)
    start = f"Start broker {missing}." if missing else "Check the logs of the brokers that lag behind."
    if refusing:
        found = f"too few in sync for acks=all: {_named(refusing)}, with ISR {_listed(refusing[0].isr)}"
        return Finding(Status.BROKEN, "replicas", found, start)
    return Finding(Status.WARNING, "replicas", f"{len(weak)} partitions are under-replicated: {_named(weak)}", start)


async def _disks(admin: Admin, kept_free: Mapping[int, KeptFree]) -> list[Finding]:
    """Judge the disks. The sizes of topics, of which there may be many, are asked for only if a disk has a problem."""
    findings: list[Finding] = []
    for topics in ((), None):
        findings = [
            disk_finding(log_dir, kept_free.get(log_dir.broker_id, KeptFree()))
            for log_dir in await admin.describe_log_dirs(topics, raise_errors=False)
        ]
        if all(finding.status is Status.OK for finding in findings):
            break
    return findings


def _named(partitions: Sequence[WeakPartition]) -> str:
    names = [f"{each.topic}-{each.partition}" for each in partitions[:_NAMED_MAX]]
    return ", ".join(names) + (", ..." if len(partitions) > _NAMED_MAX else "")


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
