"""What the agent asks of NVIDIA's driver: a narrow, typed door, so that all that decides above it runs without a GPU.

Errors are sorted by what follows from them. What a GPU has not (ECC, MIG, NVLink) is a fact, and None or False in an answer. A GPU
that is lost is a finding about hardware. Only what remains is an error of the call, with what must be done in its text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import Literal, NewType, Protocol

from solver.model.quantities import Memory

GpuUuid = NewType("GpuUuid", str)
"""GPU-... as the driver writes it; it goes with the board, through restarts and other slots."""

BusId = NewType("BusId", str)
"""Where on the PCI bus: the slot, whatever board is in it."""


class DriverError(Exception):
    """The driver did not do it; the text says what, and what has to be done about it."""


class GpuLostError(DriverError):
    """The GPU no longer answers its driver (it fell off the bus, or hangs). Its node has to be restarted."""


class InUseError(DriverError):
    """A process uses it. Nothing was changed."""


class ResetNeededError(DriverError):
    """It is written down, and takes effect once the GPU is reset or its node restarted."""


class DriverUnusableError(DriverError):
    """There is a driver, but it can't be spoken to at all: a person must act."""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU as a thing. `minor`: N of /dev/nvidiaN; None where the driver gives it no number."""

    uuid: GpuUuid
    product: str
    bus: BusId
    memory: Memory
    minor: int | None


@dataclass(frozen=True, slots=True)
class Vitals:
    """How a GPU is. `uncorrectable_errors` and the two about remapped rows are None where it has no such thing."""

    temperature_c: int | None
    throttle_reasons: tuple[str, ...]
    uncorrectable_errors: int | None
    remap_pending: bool | None
    remap_failed: bool | None


@dataclass(frozen=True, slots=True)
class GpuActivity:
    """What a GPU did over a span: percent, `nvlink` in MiB/s; None: not measured. See model/gpu_use.py for what each means."""

    source: Literal["gpm", "utilisation"]
    active: float | None = None
    occupancy: float | None = None
    tensor: float | None = None
    dram: float | None = None
    nvlink: float | None = None
    memory: float | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """A process that uses a GPU. `instance`: the id of the GPU instance it is in; None: it uses the GPU as a whole."""

    pid: int
    instance: int | None = None


@dataclass(frozen=True, slots=True)
class Wiring:
    """Where a GPU's NVLinks lead: to these GPUs, to NVSwitches, and as a part of which clique beyond its machine ("" none)."""

    peers: frozenset[BusId] = frozenset()
    switched: bool = False
    clique: str = ""


@dataclass(frozen=True, slots=True)
class OfferedProfile:
    """A kind of GPU instance that this GPU offers. `id`: what create calls take. Its name is not here: names change with boards.

    `kind`: with the media engines (`me`), without (`plain`), or of a kind that this version knows nothing of.
    """

    id: int
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]
    kind: Literal["plain", "me", "other"]


@dataclass(frozen=True, slots=True)
class InstancePlacement:
    """A GPU instance as it is asked for: of this profile (its id), from this memory slice on, so many slices long."""

    profile: int
    start: int
    slices: int


@dataclass(frozen=True, slots=True)
class Instance:
    """A GPU instance. `compute`: the ids of its compute instances. `uuid`: MIG-..., "" unless one of them has all of it.

    Without a compute instance nothing can run in it.
    """

    id: int
    place: InstancePlacement
    compute: tuple[int, ...] = ()
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class Mig:
    """Whether a GPU is in MIG mode, whether it will be after its next reset, and its instances, sorted by start."""

    enabled: bool
    pending: bool
    instances: tuple[Instance, ...] = ()


class Driver(Protocol):
    """NVIDIA's driver of this machine. Every method raises DriverError; of a GPU that is lost or unknown, GpuLostError."""

    def version(self) -> str:
        """Of the driver."""

    def gpus(self) -> tuple[GpuUuid, ...]:
        """Those that the driver can name, in its order. One that is lost may be missing."""

    def card(self, gpu: GpuUuid) -> Card:
        """What it is."""

    def vitals(self, gpu: GpuUuid) -> Vitals:
        """How it is."""

    def wiring(self, gpu: GpuUuid) -> Wiring:
        """Its NVLinks that are up."""

    def clique(self, gpu: GpuUuid) -> str:
        """The NVLink domain beyond its machine that it belongs to, as Wiring has it, asked alone."""

    def processes(self, gpu: GpuUuid) -> tuple[Process, ...]:
        """What uses it, computing, drawing or through MPS; sorted by pid."""

    def memory_used(self, device: str) -> Memory:
        """Of a GPU or of an instance (MIG-...), what the driver keeps for itself included."""

    def usage(self, gpu: GpuUuid) -> GpuActivity | None:
        """What it did since it was last asked so, by one caller.

        None: that is not known, as the first time, within a tenth of a second, or while it is in MIG mode.
        """

    def mig(self, gpu: GpuUuid) -> Mig | None:
        """None: it can't be partitioned."""

    def profiles(self, gpu: GpuUuid) -> tuple[OfferedProfile, ...]:
        """The instances it offers; () where MIG does not exist."""

    def set_mig(self, gpu: GpuUuid, on: bool) -> None:
        """Switch MIG mode. Raises InUseError or ResetNeededError where that has to wait for a reset, which was then asked for."""

    def create(self, gpu: GpuUuid, place: InstancePlacement) -> None:
        """Make a GPU instance exactly there."""

    def create_compute(self, gpu: GpuUuid, instance: int) -> None:
        """Make one compute instance that has all of a GPU instance."""

    def destroy_compute(self, gpu: GpuUuid, instance: int, compute: int) -> None:
        """Destroy a compute instance. Raises InUseError where a process is in it."""

    def destroy(self, gpu: GpuUuid, instance: int) -> None:
        """Destroy a GPU instance that has no compute instances left."""

    def listen(self, stopped: Event, heard: Callable[[GpuUuid, int], None]) -> None:
        """Call `heard` with each XID until `stopped`, which is looked at once a second. Blocks: give it a thread of its own."""
