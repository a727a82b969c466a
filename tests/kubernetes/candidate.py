"""Processes of Quorate's that tests pause and kill: `python -m tests.kubernetes.candidate stand|bind WHAT.json`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import structlog

from reconciler.kubernetes.binder.binding import Binder, GangBinding, binding_of
from reconciler.kubernetes.binder.journal import hold_annotations
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.kubeconfig import from_kubeconfig
from reconciler.kubernetes.client.leader import Election, Leadership, Timing
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.kubernetes.client.refusals import ConflictError, RefusedError
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.objects.wire import Pod
from reconciler.model.clock import SystemClock
from reconciler.protocols.backend import Epoch
from tests.kubernetes.standing import standing

CLOCK = SystemClock()
LOG = structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
"""What it prints on stdout is for the test."""


class Stand(msgspec.Struct):
    """A candidate that, once it has led and is told to by a line on stdin, binds these pods so often under what it once was."""

    kubeconfig: str
    holder: str
    timing: Timing
    gang: GangBinding
    rounds: int


class Told(msgspec.Struct):
    """What became of it."""

    leads_still: bool
    by_binder: list[str]
    accepted: int
    refused_by_fence: int
    other: int


class Bind(msgspec.Struct):
    """A binder that kills itself at the `dies_at`-th step: a request has one before it leaves, and one when it is answered."""

    kubeconfig: str
    holder: str
    epoch: int
    gangs: list[GangBinding]
    dies_at: int


class Mortal(Api):
    """Counts the steps, and dies at one; 0: never."""

    steps = 0
    dies_at = 0

    async def _once(self, *args: Any) -> bytes:
        self._step()
        answer = await super()._once(*args)
        self._step()
        return answer

    def _step(self) -> None:
        self.steps += 1
        if 0 < self.dies_at <= self.steps:
            self._die()

    def _die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def api_of(kubeconfig: str, kind: type[Api] = Api) -> Api:
    return kind(from_kubeconfig(Path(kubeconfig), CLOCK), RateLimiter(10_000, 10_000, CLOCK), Random(1))


async def bind(what: Bind) -> None:
    lead = Leadership(what.holder, Epoch(what.epoch), float("inf"))
    async with api_of(what.kubeconfig, Mortal) as api:
        assert isinstance(api, Mortal)
        api.dies_at = what.dies_at
        await Binder(api, lambda: lead, CLOCK).bind(what.gangs)
        print(api.steps)


async def stand(what: Stand) -> None:
    async with api_of(what.kubeconfig) as api, api_of(what.kubeconfig) as for_lease:
        election = Election(for_lease, what.holder, CLOCK, LOG, what.timing)
        async with standing(election):
            once = await election.elected()
            print(once.epoch, flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            outcomes = await Binder(api, election.leadership, CLOCK).bind([what.gang])
            told = Told(CLOCK.monotonic_s() < once.until_s, [pod.answer for pod in outcomes[0].pods], 0, 0, 0)
            for _ in range(what.rounds):
                each = range(len(what.gang.pods))
                await asyncio.gather(*(tried(api, what.gang, number, once, told) for number in each))
            print(msgspec.json.encode(told).decode(), flush=True)


async def tried(api: Api, gang: GangBinding, number: int, once: Leadership, told: Told) -> None:
    """With the pod as it is this moment: nothing but the fence stands in the way."""
    pod = gang.pods[number]
    now = await api.get(PODS.path(pod.namespace, pod.name), Pod)
    fresh = pod._replace(uid=now.metadata.uid, resource_version=now.metadata.resource_version)
    body = binding_of(fresh, {**hold_annotations(pod, gang), **once.stamp})
    try:
        await api.create(PODS.path(pod.namespace, pod.name, "binding"), body)
    except ConflictError:
        told.other += 1
    except RefusedError as refused:
        told.refused_by_fence += "'quorate-fence'" in refused.message
    else:
        told.accepted += 1


STORIES: dict[str, Callable[[bytes], Coroutine[Any, Any, None]]] = {
    "stand": lambda content: stand(msgspec.json.decode(content, type=Stand)),
    "bind": lambda content: bind(msgspec.json.decode(content, type=Bind)),
}


def main(mode: str, file: str) -> None:
    content = Path(file).read_bytes()
    asyncio.run(STORIES[mode](content))


if __name__ == "__main__":
    main(*sys.argv[1:])
