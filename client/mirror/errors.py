"""What ends a mirror."""

from __future__ import annotations

from ottla.client.errors import LocalError


class MirrorError(LocalError):
    """The mirror cannot go on; the message says why, and what to do."""
