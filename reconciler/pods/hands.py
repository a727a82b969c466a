"""What a leader does in the cluster: it finishes what was begun, and makes a plan's steps true."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec
from structlog.typing import FilteringBoundLogger

from reconciler.backend import Epoch
from reconciler.backends.kubernetes.api import Api
from reconciler.backends.kubernetes.binding import Binder, GangOutcome
from reconciler.backends.kubernetes.fencing import signature
from reconciler.backends.kubernetes.leader import Election
from reconciler.backends.kubernetes.mirror import Mirror
from reconciler.backends.kubernetes.objects.wire import Pod
from reconciler.backends.kubernetes.promises import Promises
from reconciler.backends.kubernetes.refusals import ConflictError, NotFoundError, UnreachableError
from reconciler.backends.kubernetes.resource import PODS
from reconciler.backends.kubernetes.watching import Key
from reconciler.pods.memory import Memory
from reconciler.pods.sight import Sight
from reconciler.pods.starts import bindings_of
from solver.plan.plan import Nominate, Plan, Reserve, Unreserve, Withdraw

BEHIND_S = 10.0
"""So long a watch may take to show what was done; a write is seen after some milliseconds."""
LOOK_EVERY_S = 0.005


class Hands:
    """Every method raises NotLeaderError once it leads no more.

    No round is decided on a view that is older than what was done here: what is bound, but not seen to be, would be given away.
    """

    def __init__(
        self,
        api: Api,
        election: Election,
        binder: Binder,
        promises: Promises,
        mirror: Mirror,
        memory: Memory,
        log: FilteringBoundLogger,
    ) -> None:
        self._api = api
        self._election = election
        self._binder = binder
        self._promises = promises
        self._mirror = mirror
        self._memory = memory
        self._log = log
        self._unseen: dict[Key, str] = {}
        """Pods that were bound and are not seen to be, with their uids."""
        self._unknown: dict[Key, str] = {}
        """Pods whose binding was not answered, with their uids: it may still arrive."""

    def lead(self) -> Epoch:
        """Under which epoch this may go on. Raises NotLeaderError."""
        return self._election.leadership().epoch

    async def caught_up(self) -> None:
        """Return once the mirror shows what was done. Raises UnreachableError where it does not, and KubernetesError."""
        for key, uid in list(self._unknown.items()):
            await self._voided(key, uid)
        for _ in range(int(BEHIND_S / LOOK_EVERY_S)):
            self._unseen = {key: uid for key, uid in self._unseen.items() if not self._is_seen(key, uid)}
            if not self._unseen:
                return
            await asyncio.sleep(LOOK_EVERY_S)
        raise UnreachableError(f"the watch of pods has not shown {len(self._unseen)} bindings for {BEHIND_S:.0f} s")

    async def _voided(self, key: Key, uid: str) -> None:
        """A Binding names the resourceVersion of its pod: with another one it is refused, should it arrive after all."""
        body = {"metadata": {"uid": uid, "annotations": signature(self._election)}}
        try:
            pod = msgspec.convert(await self._api.patch(PODS.path(*key), body), Pod)
        except (NotFoundError, ConflictError):
            self._log.info("binding-void", pod="/".join(key), reason="its pod is gone")
        else:
            if pod.spec.node_name:
                self._unseen[key] = uid
        del self._unknown[key]

    async def act(self, plan: Plan, sight: Sight) -> int:
        """Make a plan's steps true; how many were not, which the next pass sees as they are."""
        gangs = sight.gangs
        kept = [step for step in plan.steps if isinstance(step, Nominate | Withdraw | Reserve | Unreserve)]
        unkept = await self._promises.keep(kept, gangs, sight.pods)
        outcomes = await self._binder.bind(bindings_of(plan.steps, gangs))
        self._tell(outcomes)
        return len(unkept) + sum(not outcome.is_whole for outcome in outcomes)

    def _tell(self, outcomes: Iterable[GangOutcome]) -> None:
        for outcome in outcomes:
            gang = outcome.gang
            self._unseen |= {Key(*one.pod.key): one.pod.uid for one in outcome.pods if one.answer == "bound"}
            self._unknown |= {Key(*one.pod.key): one.pod.uid for one in outcome.pods if one.answer == "unknown"}
            if outcome.is_whole:
                nodes = ", ".join(dict.fromkeys(pod.node for pod in gang.pods))
                cause = f"attempt {gang.attempt} on {nodes}"
                self._memory.note("bound", gang.job, cause, state="starting", attempt=gang.attempt)
            else:
                worst = next(pod for pod in outcome.pods if pod.answer != "bound")
                self._memory.note("bind-refused", gang.job, f"pod {worst.pod.name}: {worst.answer}: {worst.why}")

    def _is_seen(self, key: Key, uid: str) -> bool:
        pod = self._mirror.pods.get(key)
        return pod is None or pod.metadata.uid != uid or bool(pod.spec.node_name)
