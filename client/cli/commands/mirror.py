"""`ottla mirror`: copy topics from one cluster to another, with their offsets."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Option
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import FormatOption
from ottla.client.cli.terminal.output import Format, echo, print_items, say
from ottla.client.cli.terminal.progress import say_above, status_line
from ottla.client.cli.terminal.sizes import human_bytes
from ottla.client.cli.terminal.target import run

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.client.mirror.agreement import Agreement
    from ottla.client.mirror.mirror import Mirror, MirrorOptions, MirrorStatus

app = noun_app("mirror")

_CLIENT_ID: Final = "ottla-mirror"
_LOOPBACK: Final = "127.0.0.1"
_SHOWN_DIFFERENCES_MAX: Final = 20
_SHOW_SECONDS: Final = 0.5


@app.function()
def mirror(
    source: Annotated[str, Option("--from", metavar="CLUSTER", help="A profile, or HOST:PORT,... of brokers.")],
    destination: Annotated[str, Option("--to", metavar="CLUSTER", help="A profile, or HOST:PORT,... of brokers.")],
    topics: Annotated[
        list[str] | None,
        Option(
            "--topics",
            "-t",
            metavar="REGEX",
            help="Topics whose whole name matches; can be repeated.",
            show_default="all",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None, Option("--exclude", metavar="REGEX", help="Topics to leave out; can be repeated.")
    ] = None,
    groups: Annotated[
        list[str] | None,
        Option(
            "--groups",
            "-g",
            metavar="REGEX",
            help="Groups whose offsets are copied; can be repeated.",
            show_default="all",
        ),
    ] = None,
    no_groups: Annotated[bool, Option("--no-groups", help="Leave out the offsets of groups.")] = False,
    no_acls: Annotated[bool, Option("--no-acls", help="Leave out ACLs.")] = False,
    once: Annotated[
        bool, Option("--once", help="Copy up to the end, compare both clusters, and exit: 0 if they agree.")
    ] = False,
    interval: Annotated[
        float,
        Option("--interval", min=0.1, metavar="SECONDS", help="How often topics, options, ACLs and groups are copied."),
    ] = 5.0,
    metrics_port: Annotated[
        int | None,
        Option("--metrics-port", min=0, max=65535, metavar="PORT", help="Serve metrics for Prometheus here."),
    ] = None,
    name: Annotated[
        str,
        Option("--name", metavar="NAME", help="Tells mirrors of different topics to one Apache Kafka apart."),
    ] = "default",
    source_config: Annotated[
        Path | None, Option("--from-config", metavar="FILE", help="A .properties file for the source.")
    ] = None,
    destination_config: Annotated[
        Path | None, Option("--to-config", metavar="FILE", help="A .properties file for the destination.")
    ] = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Copy topics, options, ACLs and offsets of groups to another cluster, until Ctrl-C.

    All records keep their offsets. Start it again after any stop: it goes on where the destination ends. Either cluster
    may be Apache Kafka. docs/MIRROR.md has the way to migrate.

    JSON, with --once: agree, topics, partitions, records, groups, acls, differences, notes. Without it, an object each
    --interval: topics, partitions, groups, records_copied, bytes_copied, lag_records, lag_bytes, lag_seconds, notes,
    errors, problems.

    \b
    Examples:
      ottla mirror --from kafka1:9092 --to localhost:9092 --topics 'orders.*'
      ottla mirror --from old --to new --topics 'orders.*' --topics 'payments' --once
      ottla mirror --from prod --to standby --exclude 'tmp-.*' --metrics-port 9700
    """
    from ottla.client.mirror.mirror import MirrorOptions
    from ottla.client.mirror.selection import Selection

    selection = Selection(
        _patterns(topics or [".*"], "--topics"),
        _patterns(exclude or [], "--exclude"),
        _patterns(groups or [".*"], "--groups"),
    )
    options = MirrorOptions(
        selection=selection,
        with_acls=not no_acls,
        with_groups=not no_groups,
        interval_seconds=interval,
        name=name,
    )
    clusters = _settings(source, source_config, "--from"), _settings(destination, destination_config, "--to")
    if once:
        found = run(lambda: _once(*clusters, options))
        _print_agreement(found, output_format)
        return
    try:
        run(lambda: _endless(*clusters, options, metrics_port, output_format))
    except KeyboardInterrupt:
        say("Stopped. Start it again to go on.")


def _patterns(texts: Sequence[str], option: str) -> tuple[re.Pattern[str], ...]:
    try:
        return tuple(re.compile(text) for text in texts)
    except re.error as error:
        raise CommandError(f"{option}: {error.pattern!r} is not a regular expression: {error}", 2) from error


def _settings(cluster: str, config: Path | None, option: str) -> dict[str, Any]:
    """Return the options of a client for a cluster that is named by a profile or by addresses."""
    from ottla.client.cli.terminal.profiles import read_profiles
    from ottla.client.errors import KafkaConfigurationError
    from ottla.client.net.settings import ClientSettings, read_properties

    profiles = read_profiles()
    named = cluster in profiles.options
    if not named and ":" not in cluster:
        known = ", ".join(sorted(profiles.options)) or "none"
        raise CommandError(f"{option} {cluster} is neither HOST:PORT nor a profile; there are: {known}.", 2)
    settings: dict[str, Any] = {"client_id": _CLIENT_ID, "default_api_timeout_ms": 20_000, "request_timeout_ms": 15_000}
    try:
        if config is not None:
            settings |= ClientSettings.kwargs_from_config(read_properties(config))
        if named:
            settings |= ClientSettings.kwargs_from_config(profiles.get(cluster))
        else:
            settings["bootstrap_servers"] = cluster
    except KafkaConfigurationError as error:
        raise CommandError(f"{option}: {error}", 2) from error
    return settings


async def _once(source: dict[str, Any], destination: dict[str, Any], options: MirrorOptions) -> Agreement:
    async with _mirrored(source, destination, options) as mirrored, _running(_show_progress(mirrored)):
        return await mirrored.once()


async def _endless(
    source: dict[str, Any],
    destination: dict[str, Any],
    options: MirrorOptions,
    metrics_port: int | None,
    output_format: Format,
) -> None:
    async with _mirrored(source, destination, options) as mirrored, _metrics(mirrored, metrics_port):
        if output_format.is_data:
            async with _running(_print_status(mirrored, options.interval_seconds, output_format)):
                await mirrored.run()
        else:
            if not mirrored.copies_bytes:
                say("The destination is Apache Kafka: records are copied once they are committed.")
            async with _running(_show_progress(mirrored)), _running(_show_news(mirrored)):
                await mirrored.run()


@asynccontextmanager
async def _mirrored(
    source: dict[str, Any], destination: dict[str, Any], options: MirrorOptions
) -> AsyncIterator[Mirror]:
    from ottla.client.mirror.mirror import Mirror

    async with (
        _connected(source, "--from") as there,
        _connected(destination, "--to") as here,
        Mirror(there, here, options) as mirrored,
    ):
        yield mirrored


@asynccontextmanager
async def _connected(settings: dict[str, Any], option: str) -> AsyncIterator[Admin]:
    from ottla.client.admin.admin import Admin
    from ottla.client.errors import NoBrokersAvailable

    admin = Admin(**settings)
    try:
        await admin.start()
    except NoBrokersAvailable as error:
        raise CommandError(f"{option}: no broker can be reached: {error.detail}.") from error
    try:
        yield admin
    finally:
        await admin.close()


@asynccontextmanager
async def _metrics(mirrored: Mirror, port: int | None) -> AsyncIterator[None]:
    from ottla.client.mirror.metrics import served

    if port is None:
        yield
        return
    try:
        async with served(_LOOPBACK, port, mirrored) as found:
            say(f"Metrics: http://{_LOOPBACK}:{found}/metrics")
            yield
    except OSError as error:
        raise CommandError(f"Cannot serve metrics on port {port}: {error.strerror}.") from error


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something on the side until the block ends."""
    import asyncio

    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _print_status(mirrored: Mirror, interval_seconds: float, output_format: Format) -> None:
    import asyncio

    while True:
        await asyncio.sleep(interval_seconds)
        print_items([mirrored.status().to_dict()], output_format)


async def _show_progress(mirrored: Mirror) -> None:
    """Show where the mirror stands, on a terminal."""
    import asyncio

    with status_line() as show:
        while True:
            show(_line(mirrored.status(), mirrored.error))
            await asyncio.sleep(_SHOW_SECONDS)


async def _show_news(mirrored: Mirror) -> None:
    """Say each thing that somebody should know once, wherever the output goes."""
    import asyncio

    told: set[str] = set()
    while True:
        status = mirrored.status()
        news = [f"Note: {note}." for note in status.notes]
        news += [
            f"{partition} is not copied any more: {problem.rstrip('.')}."
            for partition, problem in status.problems.items()
        ]
        if mirrored.error is not None:
            news.append(f"Topics, ACLs and groups will be looked at again: {mirrored.error}")
        for each in news:
            if each not in told:
                told.add(each)
                say_above(each)
        await asyncio.sleep(_SHOW_SECONDS)


def _line(status: MirrorStatus, error: str | None) -> str:
    trouble = error or next(iter(status.errors.values()), None)
    lag = f"{status.lag_records:,} behind" if status.lag_records else "up to date"
    if status.lag_seconds >= 1:
        lag += f", {status.lag_seconds:,.0f} s"
    copied = f"{status.records_copied:,} records copied ({human_bytes(status.bytes_copied)})"
    return f"{copied}, {lag}" if trouble is None else f"{copied}, {lag}: {trouble}"


def _print_agreement(found: Agreement, output_format: Format) -> None:
    """Print the result of the comparison; exit with 1 if the clusters differ."""
    if output_format.is_data:
        print_items([found.to_dict()], output_format)
    else:
        for note in found.notes:
            say(f"Note: {note}.")
        for difference in found.differences[:_SHOWN_DIFFERENCES_MAX]:
            say(f"Different: {difference.rstrip('.')}.")
        if len(found.differences) > _SHOWN_DIFFERENCES_MAX:
            say(f"... and {len(found.differences) - _SHOWN_DIFFERENCES_MAX} more; --format json has all.")
        echo(found.sentence)
    if found.differences:
        raise SystemExit(1)
