"""One seed on a cluster that many share: a world of its own, faults for some seconds, then honesty, and what is left."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.faults.judge import Problem, Standing, problems_of
from hack.kubernetes.faults.member import Member
from hack.kubernetes.faults.profile import PROFILES, Profile
from hack.kubernetes.faults.surroundings import SeenPod, Surroundings
from hack.kubernetes.faults.world import BUSY_S, Happening, Kind, Script, script_of
from hack.kubernetes.faulty_proxy import FaultyProxy
from hack.kubernetes.fence import NAMESPACES, QUORATE, install
from hack.kubernetes.intervals import Intervals, entries_of
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.kubeconfig import from_kubeconfig
from reconciler.kubernetes.client.leader import LEASE, NAMESPACE
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.kubernetes.client.refusals import NotFoundError
from reconciler.kubernetes.objects.resource import LEASES
from reconciler.model.clock import SystemClock

ADMINS = ("system:masters",)
ROUNDS_MAX = 150
"""So many rounds of a leader, after everything is honest, may pass until all is well; they are 0.05 to 0.3 s apart."""
CALM_ROUNDS = 3
"""All is well once it was so for so many rounds."""
PATIENCE_S = 90.0
"""Where nobody leads at all there are no rounds to count."""
LOOK_EVERY_S = 0.05
_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed showed. `rounds`: until all was well, after everything was honest. `violations`: kind and what."""

    seed: int
    profile: str
    requests: int
    befell: dict[str, int]
    kills: int
    ended: int
    bindings: int
    rounds: int
    violations: tuple[tuple[str, str], ...]


@dataclass
class Arena:
    """A cluster with the fence in force, and the log of its deeds as far as it was judged."""

    cluster: Cluster
    api: Api
    folder: Path
    intervals: Intervals = field(default_factory=Intervals)
    _read: int = 0

    def judged(self) -> list[tuple[str, str]]:
        """What may not be of what was done since this was asked last."""
        with self.cluster.audit_log.open() as log:
            log.seek(self._read)
            lines = log.readlines()
        whole = [line for line in lines if line.endswith("\n")]
        self._read += sum(len(line.encode()) for line in whole)
        return [(one.kind, one.what) for one in self.intervals.judged(entries_of(whole))]


@asynccontextmanager
async def arena(cluster: Cluster, folder: Path, *, fenced: bool = True) -> AsyncIterator[Arena]:
    """For many seeds, one after the other."""
    async with _session(cluster, "admin") as api, _session(cluster, QUORATE) as quorate:
        if fenced:
            await install(api, quorate)
        else:
            await api.create(NAMESPACES.path(), {"metadata": {"name": NAMESPACE}})
        yield Arena(cluster, api, folder)


async def run_seed(
    arena: Arena, seed: int, bug: str = "", profile: Profile | None = None, script: Script | None = None
) -> Outcome:
    """A world, and what came of it; profile and script are those of the seed. Seeds must not be repeated within one arena."""
    proxy = FaultyProxy(arena.cluster, QUORATE, ADMINS)
    folder = arena.folder / f"seed-{seed}"
    folder.mkdir()
    async with proxy.serving():
        chosen = profile or PROFILES[seed % len(PROFILES)]
        run = Run(arena, seed, script or script_of(seed), proxy, folder, bug, chosen)
        return await run.to_the_end()


@dataclass
class Run:
    """The state of one seed."""

    arena: Arena
    seed: int
    script: Script
    proxy: FaultyProxy
    folder: Path
    bug: str
    profile: Profile
    kills: int = 0
    ended: int = 0
    rounds: int = 0

    def __post_init__(self) -> None:
        self.around = Surroundings(self.arena.api, f"seed-{self.seed}", Random(self.seed))
        self.gangs = {gang.name: gang for gang in self.script.gangs}
        self.bindings = 0
        self.members = [self._member(number) for number in range(self.script.members)]

    async def to_the_end(self) -> Outcome:
        """Until all is well, or has not become so."""
        await self.arena.api.create(NAMESPACES.path(), {"metadata": {"name": self.around.namespace}})
        for node in self.script.nodes:
            await self.around.add_node(node)
        working = asyncio.create_task(self.around.work())
        try:
            await self._faulty()
            self.proxy.mend()
            await self.proxy.settled()
            left = await self._honest()
        finally:
            await asyncio.to_thread(self._stop_all)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await self.around.empty()
            await self._free_lease()
        return self._outcome(left)

    def _member(self, number: int) -> Member:
        name = f"s{self.seed}-m{number}"
        return Member(name, self.proxy.kubeconfig(name), self.folder, self.bug)

    async def _faulty(self) -> None:
        for member in self.members:
            member.start()
        await self._begun()
        self.proxy.on_binding = self._bound
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        self.proxy.worsen(self.profile, self.seed, BUSY_S)
        for happening in self.script.happenings:
            while (rest_s := began_s + happening.at_s - now_s()) > 0:
                await asyncio.sleep(min(LOOK_EVERY_S, rest_s))
                self._keep_alive()
            await self._happen(happening)
        while now_s() < began_s + BUSY_S:
            await asyncio.sleep(LOOK_EVERY_S)
            self._keep_alive()

    async def _begun(self) -> None:
        """Until one leads: faults are to meet work."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._rounds():
                await asyncio.sleep(LOOK_EVERY_S)

    async def _happen(self, happening: Happening) -> None:
        subject = happening.subject
        match happening.kind:
            case "arrive":
                self.around.want(self.gangs[subject])
            case "delete":
                self.around.want_no_more(subject)
            case "node-gone":
                await self.around.remove_node(subject)
            case "node-back":
                await self.around.add_node(subject)
            case "kill" | "hold-up" | "go-on" | "cut-off" | "joined" | "deaf" | "hears":
                self._befall(happening.kind, self.members[int(subject)])

    def _befall(self, kind: Kind, member: Member) -> None:
        match kind:
            case "kill":
                member.kill()
                self.kills += 1
            case "hold-up":
                member.hold_up(still=True)
            case "go-on":
                member.hold_up(still=False)
            case "cut-off":
                self.proxy.cut_off.add(member.name)
            case "joined":
                self.proxy.cut_off.discard(member.name)
            case "deaf":
                self.proxy.deaf.add(member.name)
            case "hears":
                self.proxy.deaf.discard(member.name)
            case "arrive" | "delete" | "node-gone" | "node-back":
                raise AssertionError(f"{kind} befalls no process")

    def _bound(self, who: str) -> None:
        self.bindings += 1
        if self.bindings in self.script.deaths:
            for member in self.members:
                if member.name == who:
                    self._befall("kill", member)

    def _keep_alive(self) -> None:
        """As a kubelet does it with a Deployment's pods; those that ended by themselves are counted."""
        for member in self.members:
            if not member.is_alive:
                self.ended += 1
                member.start()

    async def _honest(self) -> tuple[Problem, ...]:
        """Until all is well for some rounds; what is not well in the end."""
        for member in self.members:
            member.hold_up(still=False)
        loop = asyncio.get_running_loop()
        until_s, since, well_since = loop.time() + PATIENCE_S, self._rounds(), -1
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self._keep_alive()
            problems, self.rounds = self._problems(), self._rounds() - since
            if problems or not self.rounds:
                well_since = -1
            elif well_since < 0:
                well_since = self.rounds
            elif self.rounds - well_since >= CALM_ROUNDS:
                self.rounds = well_since
                return ()
            if self.rounds > ROUNDS_MAX or loop.time() > until_s:
                return problems or (Problem("lost", f"nobody led: {self.rounds} rounds"),)

    def _rounds(self) -> int:
        return sum(line["condition"] == "leading" for member in self.members for line in member.said())

    def _problems(self) -> tuple[Problem, ...]:
        pods = [_standing(pod) for pod in self.around.pods.values() if not pod.is_over]
        verdicts = self._verdicts()
        prefix = f"{self.around.namespace}.gang."
        said = {job.removeprefix(prefix): verdict for job, verdict in verdicts.items()}
        return problems_of(list(self.around.gangs.values()), pods, self.around.nodes, said)

    def _verdicts(self) -> dict[str, str]:
        """What any of them said last: the one who leads goes on saying it."""
        newest: dict[str, str] = {}
        for member in self.members:
            lines = member.said()
            if lines and lines[-1]["condition"] == "leading":
                newest = lines[-1]["verdicts"]
        return newest

    def _stop_all(self) -> None:
        for member in self.members:
            member.hold_up(still=False)
            member.stop()

    async def _free_lease(self) -> None:
        """The next seed's processes need not wait for one that was killed; its epoch stays, and the next is higher."""
        with suppress(NotFoundError):
            path = LEASES.path(NAMESPACE, LEASE)
            free: dict[str, Any] = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
            await self.arena.api.patch(path, free)

    def _outcome(self, left: tuple[Problem, ...]) -> Outcome:
        before = self.arena.intervals.bindings
        found = [*self.arena.judged(), *((one.kind, one.what) for one in left)]
        outcome = Outcome(
            seed=self.seed,
            profile=self.profile.name,
            requests=self.proxy.asked,
            befell=dict(Counter(self.proxy.befell)),
            kills=self.kills,
            ended=self.ended - self.kills,
            bindings=self.arena.intervals.bindings - before,
            rounds=self.rounds,
            violations=tuple(found),
        )
        (self.folder / "outcome.json").write_text(json.dumps(outcome.violations))
        return outcome


def _standing(pod: SeenPod) -> Standing:
    runs = pod.status.phase == "Running" and not pod.is_leaving
    return Standing(pod.gang, pod.spec.node_name, pod.devices, runs)


@asynccontextmanager
async def _session(cluster: Cluster, user: str) -> AsyncIterator[Api]:
    credentials = from_kubeconfig(cluster.kubeconfig(user, ADMINS), _CLOCK)
    async with Api(credentials, RateLimiter(10_000, 10_000, _CLOCK), Random(1)) as api:
        yield api
