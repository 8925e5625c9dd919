"""`ottla console`: run the console."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.function_commands import Option
from ottla.client.cli.terminal.nouns import noun_app
from ottla.client.cli.terminal.options import SchemaRegistryOption
from ottla.client.cli.terminal.target import Target, command

if TYPE_CHECKING:
    from ottla.console.server import ConsoleServer
    from ottla.console.settings import ConsoleSettings

app = noun_app("console")

_Port = Annotated[int, Option(min=0, max=65535, metavar="PORT", help="Port to listen on; 0: any free port.")]


@command(app)
def console(
    target: Target,
    host: Annotated[str, Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: _Port = 8080,
    read_only: Annotated[bool, Option("--read-only", help="Refuse everything that changes the cluster.")] = False,
    hide_records: Annotated[
        bool, Option("--hide-records", help="Never show keys, values and headers of records.")
    ] = False,
    public_url: Annotated[
        str | None,
        Option(metavar="URL", help="How browsers reach the console, if it is behind a proxy or in a container."),
    ] = None,
    is_open: Annotated[
        bool, Option("--open", help="Serve everybody who reaches the port, if the cluster asks for no password.")
    ] = False,
    certificate: Annotated[Path | None, Option(metavar="FILE", help="Certificate chain (PEM), to serve HTTPS.")] = None,
    key: Annotated[Path | None, Option(metavar="FILE", help="Private key of the certificate (PEM).")] = None,
    schema_registry: SchemaRegistryOption = None,
    static: Annotated[Path | None, Option(hidden=True)] = None,
) -> None:
    """Show and run a cluster in the browser, until Ctrl-C.

    If the cluster asks for passwords, users log in with their own, and may do what ACLs allow them. Without passwords,
    the console listens on this machine only. A user and a password in the options are not used.

    JSON: not used.

    \b
    Examples:
      ottla console
      ottla console -b broker1:9092,broker2:9092 --port 8081 --read-only
      ottla console -b broker1:9093 -X security.protocol=SASL_SSL -X sasl.mechanism=SCRAM-SHA-512
      ottla console --host 0.0.0.0 --public-url https://console.example.com
    """
    from ottla.client.errors import KafkaConfigurationError
    from ottla.client.net.settings import ClientSettings

    _check_installed()
    from ottla.console.server import ConsoleServer
    from ottla.console.settings import ConsoleSettings

    try:
        settings = ConsoleSettings(
            client=target.settings(ClientSettings),
            host=host,
            port=port,
            is_read_only=read_only,
            hides_records=hide_records,
            public_url=public_url,
            is_open=is_open,
            certificate=str(certificate) if certificate else None,
            key=str(key) if key else None,
            schema_registry_url=schema_registry,
        )
        ClientSettings.from_kwargs(settings.client_for("user", "password"))
    except KafkaConfigurationError as error:
        raise CommandError(str(error), 2) from error
    _run(ConsoleServer(settings, static), settings)


def _check_installed() -> None:
    from importlib.util import find_spec

    if find_spec("aiohttp") is None:
        raise CommandError("The console needs aiohttp: pip install 'ottla[console]'")


def _run(server: ConsoleServer, settings: ConsoleSettings) -> None:
    import asyncio
    import gc
    import logging
    import signal

    from ottla.console.server import serve

    def started(running: ConsoleServer) -> None:
        # An answer about many topics makes many objects, which the collector would walk through again and again: that
        # took as long as reading the answer.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        click.echo(f"console: {running.url}")

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    async def main() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        await serve(server, started, stopped)

    try:
        asyncio.run(main())
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        raise CommandError(f"Cannot listen on {where}: {error.strerror or error}. Choose another --port.") from error
