"""What a control plane and an agent say to each other: one JSON document in each message of a WebSocket, over TLS both ways.

The agent connects, and says Hello. A control plane that leads answers Welcome, and Declare, which says what the agent's node is.
From then on orders come down, each with the leader's epoch; reports, and beats where there is nothing to report, go up.
Whatever has an `id` is answered by a document with that `id`. An order that is not answered may have been done or not:
what came of it is in the reports. The first report of each connection is whole, so that the listener need know nothing.

A gang's order goes whole to every node that has a task of it; each agent runs its own node's. `Order.meeting` says at which
address the control plane believes each node of the gang to be, as its agent told in Hello, and which port rank 0 listens on:
`meeting_port` of the job and attempt. It follows from those alone: all orders of an attempt say the same, by any leader.
"""

from __future__ import annotations

import hashlib
from typing import Final

from reconciler.model.gpu_use import NodeMinute
from reconciler.protocols.backend import (
    BackendChanges,
    Epoch,
    GrowGang,
    PartitionGpu,
    StartGang,
    StopGang,
    StopTasks,
    TellGang,
)
from solver.model.cluster import Node, NodeName
from solver.model.document import Document
from solver.model.quantities import Duration
from solver.model.workload import JobName

PROTOCOL: Final = 1
AGENT_PATH: Final = "/agent"
"""Where agents connect, with their certificates, on the port on which they get those."""
FEATURES_HEADER: Final = "Quorate-Features"
"""Of the agent's request: what it knows beyond the first release of PROTOCOL, so that it is sent no field that it refuses."""
GPU_USE: Final = "gpu-use"
"""It hears `sample_every`."""
MESSAGE_BYTES_MAX: Final = 2**24
"""Of one message: a whole report of a node with some ten thousand tasks."""
SECRETS_BYTES_MAX: Final = 2**22
"""Of all secrets of a job together, so that they fit into a message as base64 beside their order."""

BAD_HELLO: Final = 4_000
"""Close codes of RFC 6455's private range: the agent speaks another protocol, or for another node than its certificate."""
NOT_LEADING: Final = 4_001
"""Another control plane leads, or none yet: try the next address."""
REPLACED: Final = 4_002
"""The same node has connected once more."""

_PORTS: Final = 20_000, 10_000
"""Below the range from which Linux gives ports to outgoing connections (ip(7), ip_local_port_range: 32768 to 60999)."""


class Hello(Document, frozen=True, tag=True):
    """The first message of an agent. `address`: where tasks on other nodes reach its node."""

    protocol: int
    node: NodeName
    epoch_seen: Epoch
    address: str


class Report(Document, frozen=True, tag=True):
    """What the agent's backend says has changed; `whole`: everything it knows, in place of all that was told before."""

    changes: BackendChanges
    whole: bool = False


class Beat(Document, frozen=True, tag=True):
    """The agent is there. `use`: minutes of its GPUs' use, each of which may be told again on the next connection."""

    use: tuple[NodeMinute, ...] = ()


class Done(Document, frozen=True, tag=True):
    """An order was taken, or an epoch noted: what the agent must not forget is on its disk."""

    id: int


class Refused(Document, frozen=True, tag=True):
    """An order was not taken: the agent has seen a newer epoch."""

    id: int
    epoch_seen: Epoch


class Failed(Document, frozen=True, tag=True):
    """An order may not have been taken: the node's disk refuses, or some such. Send it again."""

    id: int
    why: str


class LogRead(Document, frozen=True, tag=True):
    """A piece of a task's log; None: the agent knows no such task. `end`: it is a GapNotice, and the log goes on there."""

    id: int
    content: bytes | None
    end: int | None = None


class Attached(Document, frozen=True, tag=True):
    """Whether there is a terminal: `refused` says why not."""

    id: int
    refused: str = ""


class Shown(Document, frozen=True, tag=True):
    """What a terminal shows next; None: it has ended with `code`, or, where that is None too, the line is broken."""

    id: int
    content: bytes | None
    code: int | None = None
    stopped: bool = False


class Welcome(Document, frozen=True, tag=True):
    """The control plane leads, under this epoch; the agent keeps it if it is the newest."""

    epoch: Epoch


class Declare(Document, frozen=True, tag=True):
    """What Git says the agent's node is; None: nothing, and so it takes no work. `sample_every`: between two samples of its GPUs.

    None: this control plane does not want to hear of their use.
    """

    node: Node | None
    sample_every: Duration | None = None


class Lead(Document, frozen=True, tag=True):
    """Keep this epoch, and refuse older ones from now on."""

    id: int
    epoch: Epoch


class SentSecret(Document, frozen=True):
    """A secret of a job, on its way to a node that runs tasks of it. `value`: as the control plane has it now."""

    name: str
    key: str
    value: bytes

    def __repr__(self) -> str:
        """Without the value: nothing that is logged, or raised, has it."""
        return f"SentSecret({self.name!r}, {self.key!r}, ...)"


class Do(Document, frozen=True, tag=True):
    """Backend.submit. `secrets`: those that the order's tasks on this node are given when they begin."""

    id: int
    epoch: Epoch
    order: StartGang | StopGang | GrowGang | StopTasks | TellGang
    secrets: tuple[SentSecret, ...] = ()


class Partition(Document, frozen=True, tag=True):
    """Backend.partition."""

    id: int
    epoch: Epoch
    order: PartitionGpu


class Forget(Document, frozen=True, tag=True):
    """Backend.forget."""

    id: int
    epoch: Epoch
    job: JobName
    attempt: int


class ReadLog(Document, frozen=True, tag=True):
    """Logs.read_log."""

    id: int
    job: JobName
    attempt: int
    group: str
    index: int
    offset: int
    limit: int


class Attach(Document, frozen=True, tag=True):
    """Terminals.open_terminal. Its `id` names the line from then on."""

    id: int
    job: JobName
    attempt: int
    group: str
    index: int


class Next(Document, frozen=True, tag=True):
    """Say what the terminal shows next: one Shown for each, so that a slow reader is sent no more than it takes."""

    id: int


class Type(Document, frozen=True, tag=True):
    """Type this; where `rows`: the window is so large instead."""

    id: int
    content: bytes = b""
    rows: int = 0
    columns: int = 0


class Detach(Document, frozen=True, tag=True):
    """Let go of the terminal."""

    id: int


Answer = Done | Refused | Failed | LogRead | Attached | Shown
FromAgent = Hello | Report | Beat | Answer
ToBeDone = Lead | Do | Partition | Forget
ToAgent = Welcome | Declare | ToBeDone | ReadLog | Attach | Next | Type | Detach


def meeting_port(job: JobName, attempt: int) -> int:
    """Where rank 0 of an attempt listens. Two gangs with their rank 0 on one node get the same one time in ten thousand.

    Then the later one can't listen and fails, and its next attempt has another.
    """
    first, many = _PORTS
    digest = hashlib.blake2b(f"{job}/{attempt}".encode(), digest_size=8).digest()
    return first + int.from_bytes(digest) % many
