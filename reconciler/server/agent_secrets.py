"""What a control plane gives agents of the secrets in its folder."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.backends.baremetal.wire import SECRETS_BYTES_MAX, SentSecret
from reconciler.node.local.secrets import SecretFolder
from reconciler.node.local.terms import Terms
from reconciler.protocols.backend import Unstartable
from solver.model.workload import JobSpec


@dataclass(frozen=True, slots=True)
class AgentSecrets:
    """`folder` None: there are none to give."""

    folder: SecretFolder | None

    def sent(self, spec: JobSpec) -> tuple[SentSecret, ...]:
        """Those of a job, as they are now. None of too many: its tasks fail then, and say that they are not there."""
        found = self._of(spec)
        return found if _size(found) <= SECRETS_BYTES_MAX else ()

    def unstartable(self, spec: JobSpec, user: str) -> Unstartable | None:
        """What is known now against starting a job; which account its user has on a node, the node knows."""
        found = Terms(self.folder).unstartable(spec, user)
        if found is None and _size(self._of(spec)) > SECRETS_BYTES_MAX:
            message = f"its secrets have more than {SECRETS_BYTES_MAX} bytes together, and agents are sent no more"
            fix = "Name fewer, or have the job read them from where its node can reach them."
            return Unstartable("unknown-secret", message, fix)
        return found

    def _of(self, spec: JobSpec) -> tuple[SentSecret, ...]:
        read = self.folder.read(spec.queue, spec.secrets) if self.folder is not None else {}
        return tuple(SentSecret(use.name, use.key, value) for use, value in read.items())


def _size(secrets: tuple[SentSecret, ...]) -> int:
    return sum(len(secret.value) for secret in secrets)
