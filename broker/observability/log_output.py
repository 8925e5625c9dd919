"""Log lines: one event with fields per line, for people on a terminal, or as JSON for machines."""

from __future__ import annotations

import logging
import sys
from typing import Final, TextIO

import structlog

from ottla.broker.observability.event_ring import BROKER_EVENTS

# Control characters, which could reach a terminal through names that clients choose. The renderers escape newlines.
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n\r"}


_TEXT_LENGTH_MAX: Final = 1000
# Of the broker itself, and worth reading to its end.
_TRACEBACK: Final = "exception"


def configure_logging(level: str = "INFO", *, as_json: bool | None = None, output: TextIO = sys.stdout) -> None:
    """Write the log lines of structlog and of the standard library to one output, in one format."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _safe,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=output.isatty(), exception_formatter=structlog.dev.plain_traceback)
    )
    structlog.configure(
        processors=[
            # Before lines are dropped because of their level: events are kept anyway.
            BROKER_EVENTS.note,
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("kazoo").setLevel(logging.WARNING)


def _safe(_logger: object, _method: str, fields: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Cut long texts and escape control characters: names come from clients, which must not fill or forge the log."""
    for name, value in fields.items():
        if not isinstance(value, str):
            continue
        shown = value if len(value) <= _TEXT_LENGTH_MAX or name == _TRACEBACK else f"{value[:_TEXT_LENGTH_MAX]}..."
        fields[name] = shown if shown.isprintable() else shown.translate(_CONTROLS)
    return fields
