"""On what terms this machine runs tasks: which secrets they are given, and as which account they run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from reconciler.node.local.accounts import NOBODY, Account, NoAccountError, Submitters
from reconciler.node.local.attempts import Accepted, order_files
from reconciler.node.local.folders import ORDER
from reconciler.node.local.secrets import SecretSource
from reconciler.protocols.backend import GrowGang, StartGang, Unstartable
from reconciler.supervisor.taskfiles import SAID, WORK
from solver.model.document import decode
from solver.model.workload import JobSpec, QueueName, SecretUse

_SPECS_KEPT = 1_000
_MAP_IT = "Ask the server's operator for an account, or for --account USER=ACCOUNT."


@dataclass(frozen=True, slots=True)
class Terms:
    """`secrets` None: this machine has none to give. `submitters` None: every task runs as the control plane's own user."""

    secrets: SecretSource | None = None
    submitters: Submitters | None = None

    def unstartable(self, spec: JobSpec, user: str) -> Unstartable | None:
        """What is known now against starting a job of this user; None: nothing."""
        if spec.secrets and self.secrets is None:
            message = "it needs secrets, and the server has none"
            return Unstartable("no-secrets", message, "Start the server with --secrets DIR.")
        missing = self.secrets.lacking(spec.queue, spec.secrets) if self.secrets else []
        if missing:
            message = f"queue {spec.queue} and those above it have no secret {', '.join(map(str, missing))}"
            return Unstartable("unknown-secret", message, "Ask the server's operator to add it.")
        try:
            self._account(user, spec)
        except NoAccountError as error:
            return Unstartable("no-account", str(error), _MAP_IT)
        return None

    def of_task(self, order: StartGang | GrowGang, environment: dict[str, str]) -> dict[str, Any]:
        """The part of `task.json` that says it: places of secrets and never a value. `refused`: why the command must not run."""
        try:
            account, refused = self._account(order.user, order.spec), ""
        except NoAccountError as error:
            account, refused = None, f"{error}. {_MAP_IT}"
        return {
            "environment": _at_home(environment, account, order.spec) if account else environment,
            "secrets": [self._delivered(order, use) for use in order.spec.secrets],
            "account": {"uid": account.uid, "gid": account.gid, "groups": account.groups} if account else None,
            "refused": refused,
        }

    def hand_over(self, attempt: Path, task: Path, order: StartGang | GrowGang) -> None:
        """Let the task's account reach its folder, and own what the task writes. The supervisor's files stay closed to it."""
        try:
            account = self._account(order.user, order.spec)
        except NoAccountError:
            return  # Its command does not run.
        if account is None:
            return
        for way in (attempt, task):
            os.chown(way, -1, account.gid)
            way.chmod(0o710)
        for own in (task / WORK, task / SAID):
            os.chown(own, account.uid, account.gid)

    def values(self, attempt: Path) -> frozenset[bytes]:
        """The values of the secrets of an attempt, as they are now. Raises FileNotFoundError where it does not lie there."""
        queue, uses = _asked(attempt)
        return self.secrets.values(queue, uses) if self.secrets and uses else frozenset()

    def _account(self, user: str, spec: JobSpec) -> Account | None:
        """The root of a container that root's podman runs would be the machine's: no account is, where none is said."""
        if self.submitters is not None:
            return self.submitters.account_of(user)
        return NOBODY if spec.container is not None and os.geteuid() == 0 else None

    def _delivered(self, order: StartGang | GrowGang, use: SecretUse) -> dict[str, Any]:
        places = self.secrets.places(order, use) if self.secrets else ()
        return {"name": str(use), "places": [str(place) for place in places], "env": use.env, "file": use.file}


def _at_home(environment: dict[str, str], account: Account, spec: JobSpec) -> dict[str, str]:
    """With what login(1) would set, but what the job sets itself; TMPDIR was the control plane's. A container has no homes."""
    own = spec.env
    if spec.container is not None:
        return environment
    theirs = {name: value for name, value in environment.items() if name != "TMPDIR" or name in own}
    return {**theirs, **{name: value for name, value in account.environment.items() if name not in own}}


@lru_cache(_SPECS_KEPT)
def _asked(attempt: Path) -> tuple[QueueName, tuple[SecretUse, ...]]:
    """Of which queue an attempt is, and which secrets it names: every order says the same, and a node may have but the last."""
    spec = decode((attempt / min(order_files(attempt), default=ORDER)).read_bytes(), Accepted).order.spec
    return spec.queue, spec.secrets
