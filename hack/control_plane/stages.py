"""What is done to a control plane, one thing after the other, and what is measured of each."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from hack.control_plane.plane import Caller, Ordered, PlaneFailedError, SimulatedPlane, job_document
from hack.control_plane.world import FRESH, FULL, ROOMY, URGENT, WAITING, spec_of, waiting_spec
from hack.heartbeats.figures import quantile

READS: Final = {"status": "/v1/status", "queues": "/v1/queues", "jobs": "/v1/jobs?limit=100"}
ARRAY: Final = 1_000
CONNECTIONS: Final = 16
QUIET_S: Final = 30.0
_GPUS: Final = (1, 2, 4, 8)


class Latency(NamedTuple):
    """Milliseconds; None: nothing of it came about."""

    p50_ms: float | None
    p99_ms: float | None


def latency(found: Sequence[float]) -> Latency:
    """Of seconds."""
    if not found:
        return Latency(None, None)
    ordered = sorted(found)
    return Latency(round(1_000 * quantile(ordered, 0.5), 1), round(1_000 * quantile(ordered, 0.99), 1))


class Idle(NamedTuple):
    """A second in which nothing happens, and so a look of the loop, or a part of one: CPU milliseconds, and rounds solved."""

    pass_ms: float | None
    solves: float | None


def idle(plane: SimulatedPlane, for_s: float, limit_s: float) -> Idle:
    """Wait until nothing more is ordered, and see what passes cost from then on."""
    quiet(plane, limit_s)
    before, cpu_s = plane.passes(), plane.cpu_s()
    time.sleep(for_s)
    cost_s, solved = plane.cpu_s() - cpu_s, plane.passes()["solve"] - before["solve"]
    return Idle(round(1_000 * cost_s / for_s, 1), round(solved / for_s, 2))


def quiet(plane: SimulatedPlane, limit_s: float) -> None:
    """Wait until nothing has been ordered for two passes, or for a while in which none was needed."""
    known, since, at_s = len(plane.ordered()), plane.passes()["sight"], time.monotonic()

    def is_quiet() -> bool:
        nonlocal known, since, at_s
        if len(plane.ordered()) != known:
            known, since, at_s = len(plane.ordered()), plane.passes()["sight"], time.monotonic()
        return plane.passes()["sight"] >= since + 2 or time.monotonic() > at_s + QUIET_S

    plane.until("nothing more is ordered", is_quiet, limit_s, every_s=1.0)


def read(plane: SimulatedPlane, watchers: int, times: int, limit_s: float) -> dict[str, Latency]:
    """Ask again and again for what people look at, while others watch."""
    found: dict[str, list[float]] = {name: [] for name in READS}
    caller, over_s = plane.caller(), time.monotonic() + limit_s
    with watched(plane, watchers):
        for _ in range(times):
            for name, path in READS.items():
                if time.monotonic() < over_s:
                    began_s = time.monotonic()
                    caller.get(path)
                    found[name].append(time.monotonic() - began_s)
    return {name: latency(each) for name, each in found.items()}


@contextmanager
def watched(plane: SimulatedPlane, watchers: int, path: str = "/v1/watch") -> Iterator[None]:
    """So many streams of events are open."""
    with watched_by(plane.caller(), watchers, path):
        yield


@contextmanager
def watched_by(caller: Caller, watchers: int, path: str = "/v1/watch") -> Iterator[None]:
    """The same by whom `caller` speaks for."""
    over = Event()

    async def watch() -> None:
        where = urlsplit(caller.url)
        streams = [await asyncio.open_connection(where.hostname, where.port) for _ in range(watchers)]
        for _, writer in streams:
            writer.write(_request("GET", path, caller.headers, b""))
        takers = [asyncio.ensure_future(_drain(reader)) for reader, _ in streams]
        while not over.is_set():
            await asyncio.sleep(0.1)
        for taker, (_, writer) in zip(takers, streams, strict=True):
            taker.cancel()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    thread = Thread(target=lambda: asyncio.run(watch()), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def _drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(2**16):
        pass


class Latencies(NamedTuple):
    """From a request to the order that follows it; of an end, to the order to start a job that waited."""

    arrival: Latency
    urgent: Latency
    cancel: Latency
    end: Latency


def arrive(plane: SimulatedPlane, times: int, apart_s: float, limit_s: float) -> Latencies:
    """Jobs arrive that have room, jobs that must evict others, and jobs that run are cancelled and end, by turns."""
    caller, chance = plane.caller(), random.Random(2)
    asked: dict[str, dict[str, float]] = {"arrival": {}, "urgent": {}, "cancel": {}, "end": {}}
    running = [name for name in _running(caller) if name.startswith("r-")]
    chance.shuffle(running)
    begun = len(plane.ordered())
    for number in range(times):
        time.sleep(apart_s)
        asked["arrival"][f"fresh-{number}"] = _sent(
            caller, f"fresh-{number}", spec_of(FRESH, ROOMY, chance.choice(_GPUS))
        )
        time.sleep(apart_s)
        asked["urgent"][f"urgent-{number}"] = _sent(caller, f"urgent-{number}", spec_of(URGENT, FULL, 8, "inference"))
        time.sleep(apart_s)
        if running:
            victim = running.pop()
            asked["cancel"][victim] = time.monotonic()
            caller.post(f"/v1/jobs/{victim}/cancel")

    found, over_s = _Answered(plane, begun, asked), time.monotonic() + limit_s
    while not found.complete() and time.monotonic() < over_s:
        time.sleep(0.5)
    return Latencies(*(latency(found.seconds(kind)) for kind in Latencies._fields))


class _Answered:
    """When the order came that each waits for: for an urgent job, to the first of its victims.

    A gang ends when it is told to. The next job that starts of those that waited is taken for what follows the earliest end.
    """

    def __init__(self, plane: SimulatedPlane, begun: int, asked: dict[str, dict[str, float]]) -> None:
        self._plane = plane
        self._caller = plane.caller()
        self._seen = begun
        self._asked = asked
        self._at: dict[str, dict[str, float]] = {kind: {} for kind in asked}

    def complete(self) -> bool:
        """Whether all have come; looks at what is new."""
        orders = self._plane.ordered()
        for order in orders[self._seen :]:
            self._take(order)
        self._seen = len(orders)
        ended = len(self._asked["end"]) == len(self._asked["cancel"])
        return ended and all(len(self._at[kind]) == len(jobs) for kind, jobs in self._asked.items())

    def seconds(self, kind: str) -> list[float]:
        """How long each took that has come."""
        return [at_s - self._asked[kind][job] for job, at_s in self._at[kind].items()]

    def _take(self, order: Ordered) -> None:
        if order.kind == "StartGang" and order.job in self._asked["arrival"]:
            self._at["arrival"].setdefault(order.job, order.at_s)
        elif order.kind == "StartGang" and order.job.startswith(WAITING):
            followed = next((job for job in self._asked["end"] if job not in self._at["end"]), None)
            if followed is not None:
                self._at["end"][followed] = order.at_s
        elif order.kind == "StopGang" and order.job in self._asked["cancel"]:
            self._at["cancel"].setdefault(order.job, order.at_s)
            self._asked["end"].setdefault(order.job, order.at_s)
        elif order.kind == "StopGang":
            for event in json.loads(self._caller.get(f"/v1/jobs/{order.job}/events"))["items"]:
                if event.get("beneficiary") in self._asked["urgent"]:
                    self._at["urgent"].setdefault(event["beneficiary"], order.at_s)


def _running(caller: Caller) -> list[str]:
    return [str(each["name"]) for each in json.loads(caller.get("/v1/top"))["items"]]


def _sent(caller: Caller, name: str, spec: Any) -> float:
    """Submit it; when that was."""
    began_s = time.monotonic()
    caller.post("/v1/jobs", job_document(name, msgspec.to_builtins(spec)))
    return began_s


class Rate(NamedTuple):
    """Accepted in a second, and the latency of one submission."""

    per_s: float
    each: Latency


def submit(plane: SimulatedPlane, for_s: float, limit_s: float) -> Rate:
    """Many submit one job after the other."""
    taken, seconds = asyncio.run(_flood(plane.caller(), for_s, limit_s))
    return Rate(round(len(taken) / seconds, 1), latency(taken))


def submit_arrays(plane: SimulatedPlane, arrays: int, limit_s: float) -> Rate:
    """Arrays come one after the other; counted are their tasks."""
    caller, taken, began_s = plane.caller(), list[float](), time.monotonic()
    spec = msgspec.to_builtins(waiting_spec(random.Random(3)))
    while len(taken) < arrays and time.monotonic() - began_s < limit_s:
        sent_s = time.monotonic()
        caller.post("/v1/groups", job_document(f"many-{len(taken)}", spec, array={"indices": f"0-{ARRAY - 1}"}))
        taken.append(time.monotonic() - sent_s)
    return Rate(round(len(taken) * ARRAY / (time.monotonic() - began_s), 1), latency(taken))


async def _flood(caller: Caller, for_s: float, limit_s: float) -> tuple[list[float], float]:
    """Submissions over some connections for so long: how long each took, and how long all."""
    where, taken, chance, began_s = urlsplit(caller.url), list[float](), random.Random(4), time.monotonic()
    specs = [msgspec.to_builtins(waiting_spec(chance)) for _ in range(64)]

    async def keep_submitting(line: int) -> None:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        number = 0
        while time.monotonic() - began_s < for_s:
            document = job_document(f"one-{line}-{number}", specs[number % len(specs)])
            sent_s = time.monotonic()
            writer.write(_request("POST", "/v1/jobs", caller.headers, json.dumps(document).encode()))
            status, said = await _answer(reader)
            if status != 200:
                raise PlaneFailedError(f"POST /v1/jobs: {status} {said.decode(errors='replace')[:300]}")
            taken.append(time.monotonic() - sent_s)
            number += 1
        writer.close()
        await writer.wait_closed()

    await asyncio.wait_for(asyncio.gather(*map(keep_submitting, range(CONNECTIONS))), limit_s)
    return taken, time.monotonic() - began_s


def _request(method: str, path: str, headers: dict[str, str], body: bytes) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:"))
    return int(head.split(" ", 2)[1]), await reader.readexactly(length)
