"""Why a job waits or can't be admitted where MIG instances are asked for; part of `reasons`."""

from __future__ import annotations

from solver.model.cluster import GpuType
from solver.plan.reason import Reason, count, instances


class MigHasNoPeers(Reason, frozen=True, tag="mig-has-no-peers"):
    """The gang wants its tasks on one NVLink island, and a group of it wants MIG instances, which have no NVLink."""

    group: str

    def __str__(self) -> str:
        return f"group {self.group} asks for MIG instances in one island; an instance reaches no other GPU by NVLink"


class MigGeometryReason(Reason, frozen=True, tag="mig-geometry"):
    """How GPUs are partitioned leaves too little. `profile` "": whole GPUs, of which some are partitioned with all instances idle.

    So many tasks fit as GPUs are partitioned, with the changes that are left in this hour, and with any number of changes.
    `devices`: the instances of one task.
    """

    group: str
    gpu_type: GpuType
    profile: str
    tasks: int
    fit_as_it_is: int
    fit_with_changes: int
    fit_at_last: int
    changes_left: int
    devices: int = 1

    @property
    def each(self) -> str:
        """What one task asks for, if that is instances: `1g.10gb`, or `2x 1g.10gb`."""
        return instances(self.profile, self.devices)

    def __str__(self) -> str:
        what = f"{self.each} of {self.gpu_type}" if self.profile else f"whole {self.gpu_type}"
        changes = f"{self.fit_with_changes} with the {count(self.changes_left, 'change')} left in this hour"
        return (
            f"group {self.group} needs room for {count(self.tasks, 'task')} on {what}: room for {self.fit_as_it_is} as the GPUs "
            f"are partitioned, {changes}, {self.fit_at_last} with any number"
        )
