"""The broker's side of its guardian: starts it and hands over each new ZooKeeper session.

Without a guardian, a broker that dies by kill -9, out of memory or a crash stays registered until its session times
out. `guardian_process.py` describes the process and the lines that it is sent.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from ottla.broker.cluster import guardian_process

log = structlog.get_logger(__name__)

_LEAVING_SECONDS_MAX: Final = 5.0
# Meant for the broker, also where they are sent to all processes of a service. The guardian leaves after the broker.
_NOT_FOR_GUARDIAN: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Guardian:
    """A process that closes this process' ZooKeeper session after its death. Start it before any thread."""

    def __init__(self) -> None:
        # The broker opens the pidfd itself, so it cannot name another process by mistake.
        process_fd = os.pidfd_open(os.getpid()) if hasattr(os, "pidfd_open") else -1
        reading_end, self._orders = os.pipe()
        # A guardian that does not read must not stop the broker.
        os.set_blocking(self._orders, False)
        # The guardian inherits the blocked signals, so not even its first moment is exposed to them.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_GUARDIAN)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                # Isolated and without site-packages: it starts quickly and needs few megabytes.
                [sys.executable, "-I", "-S", guardian_process.__file__, str(process_fd)],
                stdin=reading_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=() if process_fd < 0 else (process_fd,),
                cwd="/",
                # A signal to the broker's process group does not end the guardian.
                start_new_session=True,
            )
        except OSError:
            os.close(self._orders)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
            os.close(reading_end)
            if process_fd >= 0:
                os.close(process_fd)

    @property
    def pid(self) -> int:
        """The pid of the guardian."""
        return self._process.pid

    def watch_over(self, session_id: int, password: bytes, timeout_ms: int, servers: Sequence[str]) -> None:
        """Hand over a session: it is closed if this process dies from now on. Replaces the session before it."""
        # kazoo takes the id for a signed number.
        id_as_hex = f"{session_id & 0xFFFF_FFFF_FFFF_FFFF:016x}"
        self._order(f"session {id_as_hex} {password.hex()} {timeout_ms} {','.join(servers)}")

    def use_tls(self, trusted: bytes, key: bytes, key_password: str | None, *, checks_names: bool) -> None:
        """Reach ZooKeeper with TLS; call it before the first session.

        Certificates and key are PEM. Without certificates, those of the system are trusted; we may have no key.
        """
        texts = (trusted, key, (key_password or "").encode())
        # Longer than what a pipe takes at once; the guardian reads it as soon as it has started.
        os.set_blocking(self._orders, True)
        self._order(f"tls {' '.join(text.hex() or '-' for text in texts)} {int(checks_names)}")
        os.set_blocking(self._orders, False)

    def dismiss(self) -> None:
        """Have the guardian leave without touching the session; call it when the session is closed."""
        self._order("dismissed")
        os.close(self._orders)
        try:
            self._process.wait(_LEAVING_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            log.warning("guardian_does_not_leave", pid=self._process.pid)

    def _order(self, line: str) -> None:
        """Send a line. One about a session is short enough to arrive whole or not at all."""
        try:
            os.write(self._orders, line.encode() + b"\n")
        except (BrokenPipeError, BlockingIOError) as error:
            # The broker works without it; only its death is noticed later.
            log.warning("guardian_gone", pid=self._process.pid, reason=str(error))
            with suppress(ChildProcessError):
                self._process.poll()
