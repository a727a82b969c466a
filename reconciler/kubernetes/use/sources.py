"""Asks for the exporter's figures over HTTP: a Prometheus that scrapes it, or exporters themselves."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

import httpx2
import msgspec

from reconciler.kubernetes.use.readings import FIELDS, BoardReading, from_matrix, from_text
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant

TIMEOUT_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 128 * 2**20
NODES_AT_ONCE: Final = 250
"""In one query: the figures of 2,000 GPUs are some megabytes."""
_AT_ONCE: Final = 32
_FAILURES: Final = (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, KeyError, TypeError, msgspec.MsgspecError)


class Asked(NamedTuple):
    """What came, and what went wrong; "": nothing did."""

    readings: Sequence[BoardReading]
    problem: str = ""


class UseSource(Protocol):
    """Where figures come from."""

    def read(self, nodes: Collection[NodeName], since: Instant, now: Instant) -> Asked:
        """What is known of these nodes and has come about since; never raises."""


class TooLongError(ValueError):
    """An answer was larger than any can be."""


def _client() -> httpx2.Client:
    """For one look: connections that wait for the next would be many."""
    return httpx2.Client(timeout=TIMEOUT_S, trust_env=False)


def _fetched(client: httpx2.Client, url: str, **more: object) -> bytes:
    with client.stream("GET", url, **more) as answer:  # type: ignore[arg-type]
        body = bytearray()
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > ANSWER_BYTES_MAX:
                raise TooLongError(f"an answer has more than {ANSWER_BYTES_MAX} bytes")
        if answer.status_code != 200:
            raise ValueError(f"HTTP {answer.status_code}: {bytes(body[:200]).decode(errors='replace')}")
    return bytes(body)


@dataclass
class PrometheusSource:
    """Its HTTP API at `url`. `interval`: how often the exporter has a new value.

    `token`: what it is asked with, read for each look; None: with none.
    """

    url: str
    interval: Duration
    token: Callable[[], str] | None = None

    def read(self, nodes: Collection[NodeName], since: Instant, now: Instant) -> Asked:
        """Samples with the times at which Prometheus took them. What it repeats of a target that is gone it does not have."""
        found: list[BoardReading] = []
        waiting = iter(sorted(nodes))
        try:
            with _client() as client:
                while batch := list(islice(waiting, NODES_AT_ONCE)):
                    for label in ("Hostname", "hostname"):  # the second after dcgm-exporter 4.8.2
                        found += from_matrix(
                            self._asked(client, self._query(label, batch, now - since), now), self.interval
                        )
        except _FAILURES as error:
            return Asked(found, f"{self.url}: {error}")
        return Asked(found)

    def _query(self, label: str, nodes: Sequence[NodeName], span_ms: int) -> str:
        names, there = "|".join(FIELDS), "|".join(node.replace(".", "\\\\.") for node in nodes)
        return f'{{__name__=~"{names}",{label}=~"{there}"}}[{max(1, -(-span_ms // 1_000))}s]'

    def _asked(self, client: httpx2.Client, query: str, now: Instant) -> dict[str, object]:
        headers = {"Authorization": f"Bearer {self.token()}"} if self.token is not None else {}
        asked = {"query": query, "time": str(now / 1_000)}
        body = _fetched(client, f"{self.url.rstrip('/')}/api/v1/query", params=asked, headers=headers)
        told = msgspec.json.decode(body, type=dict[str, object])
        if told.get("status") != "success":
            raise ValueError(str(told.get("error", "it did not succeed")))
        data = told["data"]
        if not isinstance(data, dict):
            raise TypeError("its answer has no data")
        return data


def resolved(host: str, port: int) -> set[str]:
    """The addresses of a name. Raises OSError."""
    return {str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}


@dataclass
class ExporterSource:
    """Exporters at `url`: one at each address that its host has, as a headless Service does."""

    url: str
    resolve: Callable[[str, int], set[str]] = resolved

    def read(self, nodes: Collection[NodeName], since: Instant, now: Instant) -> Asked:  # noqa: ARG002  (they tell of themselves)
        """What each says now."""
        try:
            there = list(self._addresses())
        except _FAILURES as error:
            return Asked((), f"{self.url}: {error}")
        with _client() as client, ThreadPoolExecutor(min(_AT_ONCE, max(1, len(there)))) as pool:
            answers = list(pool.map(lambda address: self._of(client, address, now), there))
        wrong = [each.problem for each in answers if each.problem]
        told = f"{len(wrong)} of {len(there)} exporters tell nothing: {wrong[0]}" if wrong else ""
        return Asked([reading for each in answers for reading in each.readings], told)

    def _addresses(self) -> Iterator[str]:
        parts = urlsplit(self.url)
        for address in sorted(self.resolve(parts.hostname or "", parts.port or 80)):
            shown = f"[{address}]" if ":" in address else address
            yield f"http://{shown}:{parts.port or 80}{parts.path or '/metrics'}"

    def _of(self, client: httpx2.Client, address: str, now: Instant) -> Asked:
        try:
            text = _fetched(client, address, headers={"Host": urlsplit(self.url).netloc}).decode()
            found = list(from_text(text, now))
        except _FAILURES as error:
            return Asked((), f"{address}: {str(error) or type(error).__name__}")
        if any(not reading.node for reading in found):
            return Asked((), f"{address}: its figures name no node (label Hostname)")
        return Asked(found)


LOOKED_BACK_MAX: Final = Duration(300_000)
"""What was missed because nothing answered is asked for again, so far back."""
