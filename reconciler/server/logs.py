"""The control plane's log on standard error: JSON for programs, aligned words on a terminal."""

from __future__ import annotations

import logging
import os
import sys

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor


def _telling_first(_: object, __: str, line: EventDict) -> EventDict:
    """When, how grave and what come first, for readers of JSON."""
    return {**{key: line[key] for key in ("time", "level", "event") if key in line}, **line}


_SHARED: tuple[Processor, ...] = (
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
)


def configure_logs(level: str = "INFO") -> None:
    """Send this process's log, and what its libraries log at WARNING or above, to standard error."""
    terminal = sys.stderr.isatty()
    render: Processor = (
        structlog.dev.ConsoleRenderer(colors=not os.environ.get("NO_COLOR"), timestamp_key="time")
        if terminal
        else structlog.processors.JSONRenderer()
    )
    without_trace: list[Processor] = [] if terminal else [structlog.processors.format_exc_info]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _telling_first,
                *without_trace,
                render,
            ],
            foreign_pre_chain=_SHARED,
        )
    )
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(logging.WARNING)
    logging.getLogger("quorate").setLevel(level)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def logger() -> FilteringBoundLogger:
    """The control plane's logger."""
    found: FilteringBoundLogger = structlog.get_logger("quorate")
    return found
