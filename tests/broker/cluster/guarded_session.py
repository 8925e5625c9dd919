"""A process with a session and a guardian, for tests that kill it: `python -m ... CONNECT NODE [OPTION=VALUE]...`.

It creates an ephemeral node, prints `ready GUARDIAN_PID`, and obeys the lines that it reads:

    touch    write to the node in its session, and print `touched`
    fork     have a child that inherits everything and lives on, and print its pid
    let go   close its end of the pipe to the guardian, and print `let go`
    renew    lose the session, open another one, create the node in it, and print `renewed`
    close    close the session, and end
"""

from __future__ import annotations

import os
import signal
import sys

import structlog
from tests.broker.sessions import expire

from ottla.broker.app.zookeeper_session import zookeeper_session
from ottla.broker.cluster.guardian import Guardian
from ottla.broker.config import BrokerConfig

# Longer than any test waits: what happens in a test is not the timeout.
SESSION_TIMEOUT_MS = 40_000


def main(connect: str, node: str, *options: str) -> None:
    """Obey until the end of the input."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    guardian = Guardian()
    config = {
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        **dict(option.split("=", 1) for option in options),
    }
    zookeeper = zookeeper_session(BrokerConfig.of(config), guardian)
    zookeeper.start()
    zookeeper.create(node, b"alive", ephemeral=True)
    _say(f"ready {guardian.pid}")
    for line in sys.stdin:
        match line.strip():
            case "touch":
                zookeeper.write(node, b"touched")
                _say("touched")
            case "fork":
                _say(str(_idle_child()))
            case "let go":
                os.close(guardian._orders)
                _say("let go")
            case "renew":
                expire(zookeeper)
                zookeeper.renew_session()
                zookeeper.create(node, b"alive", ephemeral=True)
                _say("renewed")
            case "close":
                zookeeper.close()
                return


def _idle_child() -> int:
    if (pid := os.fork()) == 0:
        while True:
            signal.pause()
    return pid


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
