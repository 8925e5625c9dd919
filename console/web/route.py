"""One row of the table of routes. The types of a handler are the types of its route, also in `openapi.json`."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from ottla.console.settings import Stream

PREFIX: Final = "/api/v1"
_CALL: Final = "call"
_QUERY: Final = "query"
_BODY: Final = "body"


@dataclass(frozen=True)
class Route:
    """A method and a path, with the coroutine function that answers.

    The function takes the call, then by name: the parts of the path, `query` and `body`. It returns a Struct, or
    yields lists of them: the lines of a stream.
    """

    method: str
    path: str
    handle: Callable[..., Any]
    stream: Stream | None = None
    # Without a session: logging in, and what a page needs before that.
    is_public: bool = False
    # Whether it shows what is in records, which `--hide-records` forbids.
    shows_records: bool = False

    @property
    def is_change(self) -> bool:
        """Whether it changes the cluster, which `--read-only` forbids."""
        return self.method != "GET" and not self.is_public

    @property
    def summary(self) -> str:
        """The first sentence of the handler's docstring."""
        return (inspect.getdoc(self.handle) or "").partition("\n")[0]

    @cached_property
    def types(self) -> dict[str, Any]:
        """The types of the handler's parameters and of what it returns."""
        return get_type_hints(self.handle, include_extras=True)

    @property
    def query(self) -> type[msgspec.Struct] | None:
        """The type of the query, if the route takes one."""
        return self.types.get(_QUERY)

    @property
    def body(self) -> type[msgspec.Struct] | None:
        """The type of the body, if the route takes one."""
        return self.types.get(_BODY)

    @property
    def path_types(self) -> dict[str, type]:
        """The parts of the path by name, each a str or an int."""
        return {
            name: self.types[name]
            for name in inspect.signature(self.handle).parameters
            if name not in (_CALL, _QUERY, _BODY)
        }

    @property
    def answer(self) -> Any:
        """The type of the answer, or of each line of a stream."""
        returned = self.types["return"]
        if get_origin(returned) is AsyncIterator:
            returned = get_args(returned)[0]
        # The lines of a stream come in lists.
        return get_args(returned)[0] if get_origin(returned) is list else returned
