"""A GPU as NVIDIA's driver manages it: what it allows, refuses and forgets; figures from the table of MIG profiles.

What existing mocks get wrong is right here: sizes and starts in memory slices as real dumps have them, enums that are not ids, a
mode that waits for a reset, instances that vanish with a restart, ids that are given again, memory that differs by driver.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Literal
from uuid import NAMESPACE_OID, uuid5

import pynvml

from solver.model.mig import PlacedInstance, is_valid, mig_model
from solver.model.mig_table import MigModel, MigProfile

EIGHT = {0: 19, 7: 20, 9: 15, 1: 14, 2: 9, 3: 5, 4: 0}
FOUR = {0: 14, 7: 21, 1: 5, 8: 6, 3: 0}
"""The id of a profile by NVML's enum, on GPUs with so many memory slices."""


class RefusalError(Exception):
    """What NVML answers instead, by its number."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(eq=False)
class Part:
    """A GPU instance. `compute`: slices of each of its compute instances, by their ids; `names`: their UUIDs."""

    id: int
    profile: MigProfile
    start: int
    compute: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)


@dataclass(eq=False)
class Card:
    """`held_open`: a monitor or persistence daemon has it open; that stops a reset, though it is no process of the lists.

    `resets`: a change of mode resets it; else it waits for somebody who does.
    `busy`: what its GPM metrics are from now on, by their numbers; `mute`: those that it has not; `rates`: its utilisation rates.
    `breaks_after`: so many more changes are made; then each call fails, as in a process that was killed.
    """

    number: int
    product: str = "NVIDIA H100 80GB HBM3"
    model_name: str = "H100-80GB"
    architecture: Literal["ampere", "hopper"] = "hopper"
    total: int = 80 * 2**30
    used: int = 600 * 2**20
    enabled: bool = False
    pending: bool = False
    parts: list[Part] = field(default_factory=list)
    pids: list[tuple[int, int | None]] = field(default_factory=list)
    slot: int | None = None
    held_open: bool = False
    lost: bool = False
    temperature: int | None = 41
    reasons: int = 0
    uncorrectable: int | None = 0
    remapped: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    links: tuple[int | None, ...] = ()
    cluster: bytes = bytes(16)
    resets: bool = True
    breaks_after: int | None = None
    busy: dict[int, float] = field(default_factory=dict)
    mute: set[int] = field(default_factory=set)
    rates: tuple[int, int] | None = (0, 0)
    counters: dict[int, float] = field(default_factory=dict)
    samples: int = 0
    changes: list[str] = field(default_factory=list)
    _names: count[int] = field(default_factory=count)

    @property
    def uuid(self) -> str:
        """As the driver writes it."""
        return f"GPU-{uuid5(NAMESPACE_OID, str(self.number))}"

    @property
    def bus(self) -> str:
        """Its slot."""
        return f"00000000:{(self.number if self.slot is None else self.slot) + 0x10:02X}:00.0"

    @property
    def model(self) -> MigModel:
        """Its profiles; raises RefusalError where it has none."""
        if not self.model_name:
            raise RefusalError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return mig_model(self.model_name)

    def profile_of_enum(self, enum: int) -> MigProfile:
        """As it is listed."""
        ids = EIGHT if self.model.memory_slices == 8 else FOUR
        if enum not in ids:
            raise RefusalError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return self.profile(ids[enum])

    def profile(self, profile_id: int) -> MigProfile:
        """As it is made."""
        for profile in self.model.profiles:
            if profile.profile_id == profile_id:
                return profile
        raise RefusalError(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    def part(self, part_id: int) -> Part:
        """The GPU instance of that id."""
        for part in self.parts:
            if part.id == part_id:
                return part
        raise RefusalError(pynvml.NVML_ERROR_NOT_FOUND)

    def in_mig_mode(self) -> None:
        """Raises RefusalError if it isn't."""
        if not self.enabled:
            raise RefusalError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def switch(self, on: bool) -> int:
        """What came of it: a busy GPU waits for its reset, and an Ampere that somebody has open does too."""
        self.model  # noqa: B018  (raises where there is no MIG)
        self._change(f"mode {on}")
        if on == self.enabled:
            self.pending = on
            return int(pynvml.NVML_SUCCESS)
        if self.parts:
            raise RefusalError(pynvml.NVML_ERROR_IN_USE)
        self.pending = on
        if self.pids or (self.architecture == "ampere" and self.held_open):
            return int(pynvml.NVML_ERROR_IN_USE)
        if self.resets:
            self.enabled = on
        return int(pynvml.NVML_SUCCESS)

    def create(self, profile_id: int, start: int, size: int) -> Part:
        """Exactly there, or not at all."""
        self.in_mig_mode()
        profile = self.profile(profile_id)
        if start not in profile.starts or size != profile.memory_slices:
            raise RefusalError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        placed = [PlacedInstance(part.start, part.profile) for part in self.parts]
        if not is_valid(self.model, (*placed, PlacedInstance(start, profile))):
            raise RefusalError(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
        self._change(f"create {profile.name}@{start}")
        taken = {part.id for part in self.parts}
        part = Part(next(each for each in count(1) if each not in taken), profile, start)
        self.parts.append(part)
        return part

    def create_compute(self, part: Part, slices: int) -> int:
        """In what is left of its slices."""
        if sum(part.compute.values()) + slices > part.profile.compute_slices:
            raise RefusalError(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
        self._change(f"compute {part.profile.name}@{part.start}")
        free = next(each for each in count() if each not in part.compute)
        part.compute[free] = slices
        part.names[free] = f"MIG-{uuid5(NAMESPACE_OID, f'{self.uuid}/{next(self._names)}')}"
        return free

    def destroy_compute(self, part: Part, compute: int) -> None:
        """Unless somebody is in it."""
        self._unused(part)
        self._change(f"no compute {part.profile.name}@{part.start}")
        del part.compute[compute], part.names[compute]

    def destroy(self, part: Part) -> None:
        """Unless something is in it."""
        self._unused(part)
        if part.compute:
            raise RefusalError(pynvml.NVML_ERROR_IN_USE)
        self._change(f"destroy {part.profile.name}@{part.start}")
        self.parts.remove(part)

    def restart(self) -> None:
        """Its machine restarts: an Ampere keeps its mode, nothing keeps its instances."""
        self.enabled = self.pending = self.pending and self.architecture == "ampere"
        self.parts, self.pids = [], []

    def geometry(self) -> set[str]:
        """Instances with all of their compute slices, as people write them."""
        whole = (part for part in self.parts if list(part.compute.values()) == [part.profile.compute_slices])
        return {f"{part.profile.name}@{part.start}" for part in whole}

    def _unused(self, part: Part) -> None:
        if any(instance == part.id for _, instance in self.pids):
            raise RefusalError(pynvml.NVML_ERROR_IN_USE)

    def _change(self, what: str) -> None:
        if self.breaks_after is not None:
            if self.breaks_after == 0:
                raise KeyboardInterrupt(f"killed before: {what}")
            self.breaks_after -= 1
        self.changes.append(what)
