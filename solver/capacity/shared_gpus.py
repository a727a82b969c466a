"""The GPUs of one node that are divided: each among tasks of one trust domain, up to the whole of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from solver.model.cluster import DeviceId
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import TrustDomain


class SharedGpu(NamedTuple):
    """One GPU that holds fractions. `domain` None: of several domains, since a policy changed; no new task comes there.

    `free_milli` is below 0 where some of it is promised to a job for which others have to leave.
    """

    device: DeviceId
    domain: TrustDomain | None
    free_milli: int
    healthy: bool

    def slots(self, milli: int, domain: TrustDomain) -> int:
        """How many more tasks with that share fit."""
        return max(0, self.free_milli) // milli if self.healthy and self.domain == domain else 0


SharedGpus = tuple[SharedGpu, ...]
"""Sorted by device, so that equal worlds have equal rooms."""


def best_fit(gpus: SharedGpus, milli: int, domain: TrustDomain) -> DeviceId | None:
    """The GPU left fullest by a share; None where it fits on none."""
    able = [gpu for gpu in gpus if gpu.slots(milli, domain)]
    return min(able, key=lambda gpu: (gpu.free_milli, gpu.device)).device if able else None


def tasks_on(slots: Iterable[int], devices: int) -> int:
    """Tasks that find so many different GPUs each, where each GPU has so many slots."""
    there = tuple(slots)
    tasks = sum(there) // devices
    # No task has two parts of one GPU: of more slots than there are tasks the rest is of no use.
    while (usable := sum(min(one, tasks) for one in there)) < tasks * devices:
        tasks = usable // devices
    return tasks


def dealt(slots: Iterable[tuple[DeviceId, int]], tasks: int, devices: int) -> list[tuple[DeviceId, ...]]:
    """For each of these tasks so many different GPUs, the first ones filled first. There must be room for all of them."""
    left, row = tasks * devices, list[DeviceId]()
    for device, most in slots:
        taken = min(most, tasks, left)
        row += [device] * taken
        left -= taken
    # A GPU stands in the row at most as often as there are tasks, one place after the other: each task gets it at most once.
    return [tuple(row[task::tasks]) for task in range(tasks)]


def with_share(gpus: SharedGpus, found: SharedGpu, milli: int) -> SharedGpus:
    """The GPUs after a task of the domain of `found` takes a share of one: what it was if it was not divided."""
    before = next((gpu for gpu in gpus if gpu.device == found.device), found)
    domain = before.domain if before.domain == found.domain else None
    after = before._replace(domain=domain, free_milli=before.free_milli - milli)
    return tuple(sorted((*(gpu for gpu in gpus if gpu.device != found.device), after)))


def with_owner(gpus: SharedGpus, devices: Collection[DeviceId]) -> SharedGpus:
    """The GPUs after some of them were given whole to a job: a promise that the holders of shares will be gone."""
    return tuple(
        gpu._replace(free_milli=gpu.free_milli - MILLI_PER_GPU) if gpu.device in devices else gpu for gpu in gpus
    )


def without_share(gpus: SharedGpus, device: DeviceId, milli: int) -> SharedGpus:
    """The GPUs after a share is given back; one that holds nothing any more is not among them."""
    changed = (gpu._replace(free_milli=gpu.free_milli + milli) if gpu.device == device else gpu for gpu in gpus)
    return tuple(gpu for gpu in changed if gpu.free_milli < MILLI_PER_GPU)
