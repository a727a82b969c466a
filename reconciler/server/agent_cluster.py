"""The part of a control plane with tasks on many machines: the door to their agents, and which may come through it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from structlog.typing import FilteringBoundLogger

from reconciler.backends.baremetal.agent_server import AgentServer, HeardUse
from reconciler.backends.baremetal.authority import CertificateAuthority
from reconciler.backends.baremetal.authority_file import AuthorityFile
from reconciler.backends.baremetal.backend import BareMetalBackend, joining
from reconciler.backends.baremetal.desk import AgentDesk
from reconciler.backends.baremetal.enrolment import Enrolment
from reconciler.backends.baremetal.entry import Entry
from reconciler.backends.baremetal.figures import FleetFigures
from reconciler.backends.baremetal.fleet import Fleet
from reconciler.backends.baremetal.full_collections import only_when_asked
from reconciler.backends.baremetal.merge import Patience
from reconciler.control.control import NoPolicyError, PolicySource
from reconciler.control.gpu_use import UseBook
from reconciler.lifecycle.health.trials import claims_of
from reconciler.model.clock import Clock, SystemClock
from reconciler.protocols.ledger import Claim
from reconciler.server.agent_secrets import AgentSecrets
from reconciler.server.declared_nodes import declared_nodes
from reconciler.server.execution_platform import ExecutionPlatform
from reconciler.server.parts import ServerThread
from reconciler.server.settings import AgentsSettings, Settings
from reconciler.server.terms import secret_folder_of
from reconciler.server.use_keeper import use_records
from reconciler.store.store import SqlStore
from solver.model.workload import JobName, JobSpec


def on_agents(
    settings: Settings,
    on: AgentsSettings,
    store: SqlStore,
    policies: PolicySource,
    leads: Callable[[], bool],
    wake: Callable[[], None],
    clock: Clock,
    log: FilteringBoundLogger,
    closing: ExitStack,
    book: UseBook,
) -> ExecutionPlatform:
    """Put it together. Raises KeyFileError, UnsafeSecretsError; its `begin` raises AgentListenerError."""
    # Nodes judge certificates by their own clocks.
    wall = SystemClock()
    file = AuthorityFile(on.authority or settings.folder.path / "agents" / "authority.pem")
    if on.authority is None:
        file.make(wall.now())
    authority, fleet = CertificateAuthority(file, store.agents, wall), Fleet(clock)
    enrolment = Enrolment(authority, store.agents, store.history, clock, store.database.together)
    entry = Entry(authority, enrolment)
    use = HeardUse(lambda: use_records(policies).sample_every, book.hear)
    door = AgentServer((on.host, on.port), entry, fleet, declared_nodes(policies), leads, wake, log, use)

    def begin() -> None:
        only_when_asked()
        port = door.open()
        closing.callback(door.close)
        log.info("listening-for-agents", host=on.host, port=port)

    secrets = AgentSecrets(secret_folder_of(settings.secrets, lambda: policies.current().policy))
    patience, spec_of = _patience(policies, on), _spec_of(store)
    return ExecutionPlatform(
        BareMetalBackend(
            door, fleet, lambda: _claims(store), patience, secrets.sent, spec_of, lambda: joining(store.ledger)
        ),
        secrets.unstartable,
        AgentDesk(store.agents, authority),
        begin,
        (ServerThread("agents", door.wait, door.close),),
        "they go on; agents keep them, and find the next leader",
        (FleetFigures(fleet),),
    )


def _claims(store: SqlStore) -> tuple[Claim, ...]:
    """What may run anywhere: jobs, and trials of nodes."""
    return (*store.ledger.claims(), *claims_of(store.health.all()))


def _patience(policies: PolicySource, on: AgentsSettings) -> Callable[[], Patience]:
    """As the HealthPolicy in force says, or, where there is none, the command line."""

    def patience() -> Patience:
        try:
            health = policies.current().operations.health
        except NoPolicyError:
            health = None
        if health is None:
            return Patience(lost_after=on.node_lost_after)
        return Patience(health.node_lease, health.node_lost_after)

    return patience


def _spec_of(store: SqlStore) -> Callable[[JobName], JobSpec | None]:
    """What a job says; None: it is the trial of a node, and no job."""

    def spec_of(job: JobName) -> JobSpec | None:
        try:
            return store.jobs.job(job).spec
        except KeyError:
            return None

    return spec_of
