"""Passes of the loop as traces for OpenTelemetry: a span for each, and one below it for each of its phases.

They are made of what a pass says of itself once it is over, so that nothing on its way waits for them. Where they go is what the
environment says (OTEL_EXPORTER_OTLP_ENDPOINT and its kin). The libraries are an extra, imported where traces are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final, TypeAlias

from reconciler.control.passes import Pass
from reconciler.model.clock import Clock
from solver.plan.plan import Bind, Evict, Inadmissible, Shrink, Waits

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

Value: TypeAlias = "str | int | bool"

ROUND: Final = "round"
_MS_IN_NS: Final = 1_000_000


class TracesUnavailableError(Exception):
    """They were asked for, and their libraries are not there."""


class PassTraces:
    """Hears of passes that are over, each once. `clock`: what time it is by then."""

    def __init__(self, tracer: Tracer, clock: Clock) -> None:
        self._tracer = tracer
        self._clock = clock
        self._last: Pass | None = None

    def hear(self, done: Pass) -> None:
        """Tell it. Its phases follow each other without a gap, so that the last of them ended just now."""
        if done is self._last:
            return
        self._last = done
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        end_ns = self._clock.now() * _MS_IN_NS
        at_ns = end_ns - round(sum(done.phase_ms.values()) * _MS_IN_NS)
        whole = self._tracer.start_span(ROUND, start_time=at_ns, attributes=dict(_attributes(done)))
        context = set_span_in_context(whole)
        for phase, took_ms in done.phase_ms.items():
            span = self._tracer.start_span(phase, context, start_time=at_ns)
            at_ns += round(took_ms * _MS_IN_NS)
            span.end(at_ns)
        if done.fault:
            whole.set_status(Status(StatusCode.ERROR, done.fault))
        whole.end(end_ns)


def _attributes(done: Pass) -> Iterator[tuple[str, Value]]:
    """What was decided, in numbers: names of jobs are in the round that is on record."""
    steps, verdicts = done.plan.steps, done.plan.verdicts
    if done.round is not None:
        yield "quorate.round.number", done.round
    yield "quorate.policy.revision", done.revision
    yield "quorate.epoch", int(done.epoch)
    yield "quorate.stage", done.plan.certificate.stage
    yield "quorate.jobs", len(done.snapshot.jobs)
    yield "quorate.nodes", len(done.snapshot.nodes)
    yield "quorate.settled", done.settled
    yield "quorate.refused", done.refused
    yield "quorate.starts", sum(isinstance(step, Bind) for step in steps)
    yield "quorate.evictions", sum(isinstance(step, Evict | Shrink) for step in steps)
    yield "quorate.waits", sum(isinstance(verdict, Waits | Inadmissible) for verdict in verdicts)


def pass_traces(
    asked: bool, clock: Clock, closing: ExitStack, exporter: Callable[[], SpanExporter] | None = None
) -> Callable[[Pass], None]:
    """What hears of passes; where no traces are asked for it does nothing. `exporter`: by OTLP over HTTP unless stated.

    What waits to be sent is sent when `closing` closes. Raises TracesUnavailableError.
    """
    if not asked:
        return lambda _: None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise TracesUnavailableError(f"--traces: {error.name} is not installed. Install quorate[otel]") from error
    named = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "quorate"), "service.version": _version()}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(exporter() if exporter else OTLPSpanExporter()))
    closing.callback(provider.shutdown)
    return PassTraces(provider.get_tracer("quorate"), clock).hear


def _version() -> str:
    try:
        return version("quorate")
    except PackageNotFoundError:
        return "unknown"
