"""A pass is a trace: told by OTLP to a real receiver, with a span for each phase; and nothing is imported where none are wanted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import structlog
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from reconciler.control.metrics import Metrics
from reconciler.control.runner import LoopStatus
from reconciler.model.clock import SystemClock, VirtualClock
from reconciler.server.reporter import Reporter
from reconciler.server.traces import TracesUnavailableError, pass_traces
from tests.reconciler.control.plane import Site, site_at


@contextmanager
def receiver() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """What an OpenTelemetry collector is to an exporter: its endpoint, and what came."""
    came: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
            came.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", came
        finally:
            server.shutdown()
            thread.join()


def spans(came: list[ExportTraceServiceRequest]) -> list[Span]:
    return [
        span for each in came for group in each.resource_spans for scope in group.scope_spans for span in scope.spans
    ]


def attributes(span: Span) -> dict[str, str | int]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_at(tmp_path / "quorate.db") as made:
        yield made


def test_a_pass_comes_to_a_collector_as_one_trace(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.submit("job", ("sleep", "forever"))
    done = site.one_pass()
    assert done.phase_ms
    timed = replace(done, phase_ms=dict.fromkeys(done.phase_ms, 5.0), fault="the solver failed")
    with receiver() as (endpoint, came), ExitStack() as closing:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        trace = pass_traces(asked=True, clock=SystemClock(), closing=closing)
        reporter = Reporter(Metrics(), structlog.get_logger(), VirtualClock(), trace=trace)
        for _ in range(2):
            reporter.hear(LoopStatus("leading", "", timed))
        closing.close()
    (whole,) = [span for span in spans(came) if span.name == "round"]
    phases = sorted((span for span in spans(came) if span is not whole), key=lambda span: span.start_time_unix_nano)
    assert [span.name for span in phases] == list(done.phase_ms)
    assert {(span.trace_id, span.parent_span_id) for span in phases} == {(whole.trace_id, whole.span_id)}
    assert [span.end_time_unix_nano - span.start_time_unix_nano for span in phases] == [5_000_000] * len(phases)
    edges = [phases[0].start_time_unix_nano, *(span.end_time_unix_nano for span in phases)]
    assert edges[:-1] == [span.start_time_unix_nano for span in phases]
    assert (whole.start_time_unix_nano, whole.end_time_unix_nano) == (edges[0], edges[-1])
    told = attributes(whole)
    assert (told["quorate.policy.revision"], told["quorate.starts"], told["quorate.jobs"]) == ("revision", 1, 1)
    assert (whole.status.code, whole.status.message) == (2, "the solver failed")
    assert "job" not in {str(value) for value in told.values()}
    (resource,) = [group.resource for each in came for group in each.resource_spans]
    assert {each.key: each.value.string_value for each in resource.attributes}["service.name"] == "quorate"


def test_a_collector_that_is_away_keeps_nothing_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with ExitStack() as closing:
        pass_traces(asked=True, clock=SystemClock(), closing=closing)(site.one_pass())


def test_where_none_are_asked_for_nothing_of_it_is_imported() -> None:
    script = (
        "import sys\nfrom contextlib import ExitStack\nfrom reconciler.model.clock import SystemClock\n"
        "import reconciler.server.local_cluster, reconciler.cli.run\n"
        "from reconciler.server.traces import pass_traces\n"
        "pass_traces(asked=False, clock=SystemClock(), closing=ExitStack())(None)\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_its_libraries_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(TracesUnavailableError, match=r"Install quorate\[otel\]"):
        pass_traces(asked=True, clock=SystemClock(), closing=ExitStack())
