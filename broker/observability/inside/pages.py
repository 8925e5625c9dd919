"""The pages below `/inside/v1`, by the first part of their paths. Each is bounded, and shared for a second.

Several consoles may look at once. So an answer is made at most once a second, however many ask.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.broker.observability.http_server import Page

_VERSION: Final = "v1"
_SHARED_SECONDS: Final = 1.0
# Pages of different partitions are kept apart; more of them than this are not shared.
_KEPT_MAX: Final = 64


class InsidePages:
    """What `/inside/v1/<name>` and `/inside/v1/<name>/<rest>` show."""

    def __init__(self, pages: Mapping[str, Page], clock: Callable[[], float] = time.monotonic) -> None:
        self._pages = pages
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, dict[str, Any]]] = {}

    def __call__(self, path: str) -> dict[str, Any] | None:
        """Return a page; None if there is none of this name."""
        version, _, rest = path.partition("/")
        if version != _VERSION:
            return None
        name, _, subject = rest.partition("/")
        if not name:
            return {"pages": sorted(self._pages)}
        page = self._pages.get(name)
        if page is None:
            return None
        with self._lock:
            made_at, shown = self._kept.get(rest, (0.0, None))
            if shown is not None and self._clock() - made_at < _SHARED_SECONDS:
                return shown
            # Others wait here, and then take what this one made.
            made = page(subject)
            if made is not None:
                if len(self._kept) >= _KEPT_MAX:
                    self._kept.clear()
                self._kept[rest] = (self._clock(), made)
            return made
