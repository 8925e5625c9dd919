"""`python -m ottla.broker --config server.properties [--override key=value]...`"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

EXAMPLES = """examples:
  python -m ottla.broker --config config/server.properties
  python -m ottla.broker --override zookeeper.connect=127.0.0.1:2181
  KAFKA_ZOOKEEPER_CONNECT=127.0.0.1:2181 python -m ottla.broker
"""

_NOT_FOR_LIBRARIES: Final = ("greenlet", "rich", "typing_extensions")


def main(arguments: list[str] | None = None) -> int:
    """Run a broker until it is told to stop."""
    parser = argparse.ArgumentParser(
        prog="python -m ottla.broker",
        description="Run one broker in the foreground.\nOptions: file, then environment (KAFKA_*), then --override.",
        epilog=EXAMPLES,
        # With a width: to ask the terminal, argparse would import shutil, and compression libraries with it.
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=80),
    )
    parser.add_argument("--config", metavar="FILE", help="a server.properties file")
    parser.add_argument("--override", metavar="KEY=VALUE", action="append", default=[], help="one option; repeatable")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="form of the log lines")
    parser.add_argument("--log-level", default="INFO", help="least important lines to show (DEBUG, INFO, WARNING)")
    options = parser.parse_args(arguments)
    _import_libraries()
    from ottla.broker.config import ConfigError, load_broker_config

    try:
        config = load_broker_config(options.config and Path(options.config), os.environ, options.override)
    except (ConfigError, OSError) as error:
        print(error, file=sys.stderr)
        return 2

    # What is imported stays: the collector need not look through it, neither now nor later.
    gc.disable()
    from ottla.broker.observability.log_output import configure_logging

    configure_logging(options.log_level, as_json=options.log_format == "json")
    return _serve(config)


def _import_libraries() -> None:
    """Import msgspec and structlog without what they use wherever it is installed, and a broker does not need.

    structlog would use rich for tracebacks that our log lines do not have, and msgspec would use the annotations of
    typing_extensions, which are in typing as well. With what they import in turn they take a tenth of the time and of
    the memory of a broker's start.
    """
    hidden = [name for name in _NOT_FOR_LIBRARIES if name not in sys.modules]
    # An import of None fails, and the libraries do without.
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        import msgspec  # noqa: F401
        import structlog  # noqa: F401
    finally:
        for name in hidden:
            del sys.modules[name]


def _serve(config: object) -> int:
    import structlog

    from ottla.broker.app.zookeeper_session import zookeeper_session
    from ottla.broker.cluster.guardian import Guardian
    from ottla.broker.config import BrokerConfig, ConfigError, effective_config

    assert isinstance(config, BrokerConfig)
    log = structlog.get_logger("ottla.broker")
    for warning in config.warnings:
        log.warning("option_warning", detail=warning)
    if config.without_effect:
        log.info("options_without_effect", names=", ".join(config.without_effect))
    log.info("options", effective=effective_config(config))
    # Records and credentials are nobody else's to read: neither in our files, nor in what is left of a crash.
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Connections and segments share one budget, and the usual soft limit of 1024 is a laptop's.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    guardian = None
    if config.ottla_guardian_enable:
        try:
            guardian = Guardian()
        except OSError as error:
            log.warning("no_guardian", reason=str(error))
    try:
        zookeeper = zookeeper_session(config, guardian)
    except ConfigError as error:
        log.error("cannot_start", error=str(error))
        return 1
    # ZooKeeper needs longer to open a session than we need for it, so the rest is imported meanwhile.
    starter = ThreadPoolExecutor(1, "zookeeper-start")
    connected = starter.submit(zookeeper.start)
    starter.shutdown(wait=False)
    import uvloop

    from ottla.broker.app.server import serve
    from ottla.broker.cluster.membership import RegistrationError
    from ottla.broker.cluster.operations import ZooKeeperError
    from ottla.broker.storage.errors import StorageError

    gc.freeze()
    gc.enable()

    async def run() -> None:
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        await asyncio.wrap_future(connected)
        await serve(config, zookeeper, stopping)

    try:
        uvloop.run(run())
    except (ConfigError, OSError, RegistrationError, StorageError, ZooKeeperError) as error:
        log.error("cannot_start", error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
