"""What a HealthPolicy says: from when on a node or GPU is suspect, and when nothing new, or nothing at all, is to run there."""

from __future__ import annotations

from typing import Final, Literal

from solver.model.document import Document
from solver.model.quantities import Duration

Action = Literal["ignore", "suspect", "cordon", "drain"]
"""What follows from a finding, from the mildest on. cordon: nothing new starts there; drain: what runs there leaves, too."""

ThrottleReason = Literal["hardware-slowdown", "hardware-thermal", "power-brake", "power-cap", "sync-boost", "thermal"]
"""What slows a GPU down, as agents tell it of NVML (nvmlClocksEventReasons)."""

SLOWED: Final[tuple[ThrottleReason, ...]] = ("hardware-slowdown", "hardware-thermal", "power-brake", "thermal")
"""Reasons that are not wanted. A power cap often is, and clocks that go by the slowest of some GPUs are no fault of this one."""


class XidActions(Document, frozen=True):
    """What follows from an XID, by its class. After one of `replace` a GPU is not tried again by itself."""

    application: Action = "ignore"
    reset: Action = "drain"
    drain: Action = "drain"
    replace: Action = "drain"


class EccActions(Document, frozen=True):
    """What follows from errors of a GPU's memory: one more that can't be corrected, a remapping of rows that waits for a
    reset, and one that failed."""

    uncorrectable: Action = "suspect"
    remap_pending: Action = "cordon"
    remap_failed: Action = "drain"


class ThrottleRule(Document, frozen=True, rename={"held": "for"}):
    """A GPU that is slowed down for so long, for one of these reasons."""

    action: Action = "suspect"
    reasons: tuple[ThrottleReason, ...] = SLOWED
    held: Duration = Duration(600_000)


class NicRule(Document, frozen=True):
    """Network interfaces by name that are down, or slower than so many Mbit/s (0: speed does not matter), for so long."""

    names: tuple[str, ...] = ()
    action: Action = "cordon"
    down_for: Duration = Duration(60_000)
    slower_than_mbps: int = 0


class StragglerRule(
    Document, frozen=True, rename={"held": "for", "below_median": "belowMedian", "min_tasks": "minTasks"}
):
    """A task that does less than this part of its peers' median of steps accuses its node, if at least `min_tasks` of them say
    how fast they are, and it lasts so long. `several`: what follows once two gangs or more accuse the same node."""

    action: Literal["ignore", "suspect"] = "suspect"
    several: Action = "cordon"
    below_median: float = 0.8
    held: Duration = Duration(600_000)
    min_tasks: int = 4


class NodeTest(Document, frozen=True):
    """What is run on a drained node before it takes work again: passed is what ends with exit code 0 within `timeout`.

    It is run again `every` so often until it passes.
    """

    command: tuple[str, ...]
    every: Duration = Duration(600_000)
    timeout: Duration = Duration(300_000)


ConditionStatus = Literal["True", "False", "Unknown"]
"""Of a condition of a Kubernetes node. Unknown: what sets it has not been heard of for a while."""

TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class ConditionRule(Document, frozen=True, rename={"held": "for"}):
    """A condition of a Kubernetes node that has had one of these statuses for so long: its kubelet's, Node Problem Detector's …"""

    type: str
    action: Action
    status: tuple[ConditionStatus, ...] = ("True",)
    held: Duration = Duration(0)

    @property
    def subject(self) -> str:
        """What tells it from other rules; how long it takes does not."""
        return f"{self.type}={'|'.join(sorted(self.status))} {self.action}"


class TaintRule(Document, frozen=True, rename={"held": "for"}):
    """A taint that a Kubernetes node has had for so long. `value`, `effect` None: whichever it has."""

    key: str
    action: Action
    value: str | None = None
    effect: TaintEffect | None = None
    held: Duration = Duration(0)

    @property
    def subject(self) -> str:
        """As of a ConditionRule."""
        value = "" if self.value is None else f"={self.value}"
        return f"{self.key}{value}:{self.effect or '*'} {self.action}"


class LabelRule(Document, frozen=True, rename={"held": "for"}):
    """A label that a Kubernetes node has had for so long, with one of these values; none named: with whichever."""

    key: str
    action: Action
    values: tuple[str, ...] = ()
    held: Duration = Duration(0)

    @property
    def subject(self) -> str:
        """As of a ConditionRule."""
        return f"{self.key}={'|'.join(sorted(self.values)) or '*'} {self.action}"


class HealthPolicy(Document, frozen=True):
    """A finding counts until `bad_node_ttl` after it was seen last, one that only makes suspect until `suspect_ttl` after.

    A node without news of its agent for `node_lease` is not ready. `lost`: what follows for a node that was not ready for
    `node_lost_after`; `gpu_lost`: for a GPU that does not answer its driver. `conditions`, `taints`, `labels`: what follows from
    those of a Kubernetes node.
    `test`: what a drained node has to pass when its time is over; None: nothing. `max_unhealthy`: the most of a pool's nodes that
    is cordoned or drained at once, rounded up.
    """

    node_lease: Duration = Duration(20_000)
    node_lost_after: Duration = Duration(300_000)
    lost: Action = "suspect"
    gpu_lost: Action = "drain"
    xid: XidActions = XidActions()
    ecc: EccActions = EccActions()
    throttle: ThrottleRule = ThrottleRule()
    nic: NicRule = NicRule()
    straggler: StragglerRule = StragglerRule()
    conditions: tuple[ConditionRule, ...] = ()
    taints: tuple[TaintRule, ...] = ()
    labels: tuple[LabelRule, ...] = ()
    suspect_ttl: Duration = Duration(3_600_000)
    bad_node_ttl: Duration = Duration(24 * 3_600_000)
    test: NodeTest | None = None
    max_unhealthy: str = "20%"
    origin: str = ""

    @property
    def unhealthy_percent(self) -> int:
        """`max_unhealthy` as a number."""
        return int(self.max_unhealthy.removesuffix("%"))
