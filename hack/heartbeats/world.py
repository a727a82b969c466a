"""What a run of the benchmark is: how many agents, how often they beat; and their certificates, as if all of them had joined."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import insert

from reconciler.backends.baremetal.authority import CertificateAuthority
from reconciler.backends.baremetal.authority_file import AuthorityFile
from reconciler.backends.baremetal.certificates import LIFE, Key, key_pem, node_certificate, pem_of, request_for
from reconciler.backends.baremetal.roots import signing_roots
from reconciler.model.clock import SystemClock
from reconciler.protocols.agents import AgentRecord
from reconciler.store.store import SqlStore, open_store
from reconciler.store.tables import agents as table
from solver.model.cluster import NodeName

HOST: Final = "127.0.0.1"


class Case(NamedTuple):
    """`folder`: where the run keeps what its processes share. `ping_s`: beside beats, each agent pings so often; 0: it does not.

    `opening`: how many connections are under way at once, in each process of agents, until all are open.
    `busy`: beside a thread that computes, as a round does.
    """

    folder: Path
    agents: int
    every_s: float
    for_s: float
    ping_s: float
    opening: int
    busy: bool

    @property
    def stamps(self) -> Path:
        """See Stamps."""
        return self.folder / "stamps"


def node(number: int) -> NodeName:
    """The node of an agent."""
    return NodeName(f"gpu-{number:05}")


def number_of(name: NodeName) -> int:
    """And back."""
    return int(name.removeprefix("gpu-"))


def join_all(case: Case) -> None:
    """Put every agent on record, in its first generation."""
    now, store = SystemClock().now(), open_store(case.folder / "quorate.db")
    authority_file(case).make(now)
    joined = (AgentRecord(node(number), 1, now, now, now.after(LIFE)) for number in range(case.agents))
    with store.database.writing() as connection:
        connection.execute(insert(table), [msgspec.structs.asdict(each) for each in joined])
    store.close()


def authority_file(case: Case) -> AuthorityFile:
    """Whose certificates all have."""
    return AuthorityFile(case.folder / "agents" / "authority.pem")


def authority(case: Case) -> tuple[CertificateAuthority, SqlStore]:
    """The control plane's, and the store that it reads."""
    store = open_store(case.folder / "quorate.db")
    return CertificateAuthority(authority_file(case), store.agents, SystemClock()), store


def identity(case: Case, number: int, key: Key) -> bytes:
    """Key and certificate of an agent, as PEM."""
    now = SystemClock().now()
    root = signing_roots(authority_file(case).roots(), now).signing
    return key_pem(key) + pem_of(node_certificate(root.certificate, root.key, request_for(node(number), key), 1, now))
