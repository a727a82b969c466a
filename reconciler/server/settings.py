"""What `quorate run` was asked for."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.connections.limits import USUAL_TIMEOUTS, RequestTimeouts
from reconciler.kubernetes.objects.pod_ownership import PodOwnership
from reconciler.node.local_driver import WhoseGpus
from reconciler.server.folder import StateFolder
from solver.model.quantities import Duration


@dataclass(frozen=True, slots=True)
class DcgmSettings:
    """Where dcgm-exporter is read: at a Prometheus' HTTP API, with a `token` if it wants one, or at exporters themselves."""

    url: str
    is_prometheus: bool
    token: Path | None
    interval: Duration


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """Of a cluster with pods as jobs. `kubeconfig` (): what a pod is given, else what kubectl would read; several are merged.

    `context`: of these, or of what kubectl would read; None: the current one, or what a pod is given.

    `namespace` and `lease`: where leaders are elected. `qps`, `burst`: how many requests leave, at most. `observed`: only look,
    and at whose pods. `mirror_policy`: the policy in force is shown there as ConfigMaps.
    `mig_configs`: namespace and name of the ConfigMap of the MIG manager. `dcgm`: what tells what GPUs do; None: nothing does.
    """

    kubeconfig: tuple[Path, ...]
    context: str | None
    namespace: str
    lease: str
    holder: str
    qps: float
    burst: int
    mig_configs: tuple[str, str]
    observed: PodOwnership | None = None
    mirror_policy: bool = False
    dcgm: DcgmSettings | None = None


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """Of a cluster that Slurm schedules, and which is looked at every so long. `queue`: that of jobs for which there is none."""

    every: Duration
    queue: str = ""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """A PostgreSQL database. `password_file` None: libpq finds it. `tasks`: they lie there, for all that share the store."""

    url: str
    password_file: Path | None = None
    tasks: Path | None = None


@dataclass(frozen=True, slots=True)
class AgentsSettings:
    """Of a cluster of machines with agents. `host` and `port`: where those connect. `authority`: the file with the key of their
    certificates; None: one in the state folder, made if need be.
    """

    host: str
    port: int
    authority: Path | None
    node_lost_after: Duration


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Of metrics that have an address of their own. `token`: the file with what is asked for there; None: nothing is."""

    host: str
    port: int
    token: Path | None


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Of those to the API. None: as many as the limit of open files leaves, and half of them for one peer."""

    connections_max: int | None = None
    per_peer_max: int | None = None
    timeouts: RequestTimeouts = USUAL_TIMEOUTS


@dataclass(frozen=True, slots=True)
class Settings:
    """What `quorate run` was asked for. `hosts`: names, beside loopback's, that the API answers to. `tokens`: the token file.

    `external_url`: the origin under which browsers find it; "": none is known. `client_secrets`: files by identity provider.
    `allowed_signers`: signers that are asked for whatever Git says. `webhook_secret`: the file of what forges sign with.
    `secrets`: the folder of secrets. `accounts`: which users have which accounts of this machine; None: jobs run as this user.
    `keep_logs`: how long those of ended attempts are kept; None: for ever.
    `connections`: how many others may open to the API, and how long they may take.
    `cluster`: which one's policy, where there are several. `kubernetes`: jobs are pods there; None: processes here.
    `slurm`: jobs are those of Slurm, beside which it is only said what rounds would do.
    `agents`: jobs run on machines with agents; None: on this one. `store`: a PostgreSQL database; None: SQLite in the folder.
    `metrics`: where they are served as well; None: with the API alone. `traces`: of passes, sent where the environment says.
    `audit_keys`, `audit_anchors`: files of the audit chain; None: those of the state folder.
    `round_worker_from`: of clusters with so many GPUs rounds are decided in a process of their own; None: as is usual.
    `take_clock`: the time of the cluster begins with the clock, whatever was counted by before.
    """

    policies: str
    branch: str
    folder: StateFolder
    host: str
    port: int
    poll: Duration
    hosts: Collection[str] = ()
    authenticate: bool = True
    tokens: Path | None = None
    secrets: Path | None = None
    accounts: Mapping[str, str] | None = None
    gpus: WhoseGpus = "declared"
    keep_logs: Duration | None = None
    allowed_signers: Path | None = None
    webhook_secret: Path | None = None
    cluster: str | None = None
    kubernetes: KubernetesSettings | None = None
    slurm: SlurmSettings | None = None
    agents: AgentsSettings | None = None
    store: StoreSettings | None = None
    connections: ConnectionSettings = ConnectionSettings()
    round_worker_from: int | None = None
    external_url: str = ""
    client_secrets: Mapping[str, Path] = field(default_factory=dict)
    metrics: MetricsSettings | None = None
    traces: bool = False
    audit_keys: Path | None = None
    audit_anchors: Path | None = None
    take_clock: bool = False

    @property
    def audit_key_file(self) -> Path:
        """Where the keys of the audit chain are."""
        return self.audit_keys or self.folder.audit_keys

    @property
    def audit_anchor_file(self) -> Path:
        """Where anchors of the audit chain are added."""
        return self.audit_anchors or self.folder.audit_anchors

    @property
    def tasks(self) -> Path:
        """Where processes of this machine that are tasks lie."""
        shared = self.store.tasks if self.store is not None else None
        return shared or self.folder.tasks


def identity_of_this_process() -> str:
    """Told apart from every other process, also from one on this host before it: a lease is never taken over by a namesake."""
    return f"{socket.gethostname()[:64]}-{secrets.token_hex(4)}"
