"""MIG profiles of each GPU model as the driver prints them: slices, possible starts, and how many fit.

All models with 8 memory slices share one geometry; names, SMs and memory differ. Profile ids are what
`nvidia-smi mig -lgip` calls them and what create calls take; NVML's profile enum is another numbering.

Confidence. A100-40GB, A100-80GB, H100-80GB, H100-NVL-94GB and A30-24GB: verified against several independent dumps
of `nvidia-smi mig -lgip` and `-lgipp` and NVIDIA's MIG user guide (the SMs of the 1g double of H100-NVL are those of
H100-80GB). H200-141GB: everything from a real `-lgip` except the starts, which are from a secondary table.
B200-180GB: placements are secondary, recorded on p6-b200 machines, and 1g memory differs by board. Probe the last
two on hardware before relying on them. Memory moves by up to 130 MiB with the driver (A100-40GB), so it is for people
to read, never to compare exactly.
"""

from __future__ import annotations

from typing import Literal

from solver.model.document import Document

MigAttribute = Literal["me"]
"""`me`: the instance has the GPU's media engines. A GPU can give them away once."""


MigModelName = Literal["A100-40GB", "A100-80GB", "H100-80GB", "H100-NVL-94GB", "H200-141GB", "B200-180GB", "A30-24GB"]
"""The models of the table."""


class MigProfile(Document, frozen=True, cache_hash=True):
    """One kind of GPU instance on one model. `starts` and `memory_slices` are in memory slices, `memory_mib` in MiB."""

    name: str
    profile_id: int
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]
    instances_max: int
    sms: int
    memory_mib: int | None = None
    attributes: tuple[MigAttribute, ...] = ()


class MigModel(Document, frozen=True):
    """One GPU model that can be partitioned."""

    name: str
    compute_slices: int
    memory_slices: int
    profiles: tuple[MigProfile, ...]


Slices = tuple[int, int, int, tuple[MigAttribute, ...], tuple[int, ...], int]
"""Profile id, compute slices, memory slices, attributes, starts, most instances at once."""

_EIGHT_SLICES: tuple[Slices, ...] = (
    (19, 1, 1, (), (0, 1, 2, 3, 4, 5, 6), 7),
    (20, 1, 1, ("me",), (0, 1, 2, 3, 4, 5, 6), 1),
    (15, 1, 2, (), (0, 2, 4, 6), 4),
    (14, 2, 2, (), (0, 2, 4), 3),
    (9, 3, 4, (), (0, 4), 2),
    (5, 4, 4, (), (0,), 1),
    (0, 7, 8, (), (0,), 1),
)
_FOUR_SLICES: tuple[Slices, ...] = (
    (14, 1, 1, (), (0, 1, 2, 3), 4),
    (21, 1, 1, ("me",), (0, 1, 2, 3), 1),
    (5, 2, 2, (), (0, 2), 2),
    (6, 2, 2, ("me",), (0, 2), 1),
    (0, 4, 4, (), (0,), 1),
)


def _model(
    name: str, slices: tuple[int, int], sliced: tuple[Slices, ...], *named: tuple[str, int, int | None]
) -> MigModel:
    """A model from its profiles' slices and, in the same order, their names, SMs and usable memory in MiB."""
    profiles = tuple(
        MigProfile(called, profile_id, compute, memory, starts, most, sms, memory_mib, attributes)
        for (profile_id, compute, memory, attributes, starts, most), (called, sms, memory_mib) in zip(
            sliced, named, strict=True
        )
    )
    return MigModel(name, *slices, profiles)


MODELS: tuple[MigModel, ...] = (
    _model(
        "A100-40GB",
        (7, 8),
        _EIGHT_SLICES,
        ("1g.5gb", 14, 4864),
        ("1g.5gb+me", 14, 4864),
        ("1g.10gb", 14, 9856),
        ("2g.10gb", 28, 9856),
        ("3g.20gb", 42, 19968),
        ("4g.20gb", 56, 19968),
        ("7g.40gb", 98, 40192),
    ),
    _model(
        "A100-80GB",
        (7, 8),
        _EIGHT_SLICES,
        ("1g.10gb", 14, 9856),
        ("1g.10gb+me", 14, 9856),
        ("1g.20gb", 14, 19968),
        ("2g.20gb", 28, 19968),
        ("3g.40gb", 42, 40192),
        ("4g.40gb", 56, 40192),
        ("7g.80gb", 98, 80384),
    ),
    _model(
        "H100-80GB",
        (7, 8),
        _EIGHT_SLICES,
        ("1g.10gb", 16, 9984),
        ("1g.10gb+me", 16, 9984),
        ("1g.20gb", 26, 20096),
        ("2g.20gb", 32, 20096),
        ("3g.40gb", 60, 40448),
        ("4g.40gb", 64, 40448),
        ("7g.80gb", 132, 81152),
    ),
    _model(
        "H100-NVL-94GB",
        (7, 8),
        _EIGHT_SLICES,
        ("1g.12gb", 16, None),
        ("1g.12gb+me", 16, None),
        ("1g.24gb", 26, None),
        ("2g.24gb", 32, None),
        ("3g.47gb", 60, None),
        ("4g.47gb", 64, None),
        ("7g.94gb", 132, None),
    ),
    _model(
        "H200-141GB",
        (7, 8),
        _EIGHT_SLICES,
        ("1g.18gb", 16, None),
        ("1g.18gb+me", 16, None),
        ("1g.35gb", 26, None),
        ("2g.35gb", 32, None),
        ("3g.71gb", 60, None),
        ("4g.71gb", 64, None),
        ("7g.141gb", 132, None),
    ),
    _model(
        "B200-180GB",
        (7, 8),
        _EIGHT_SLICES,
        ("1g.23gb", 18, 20992),
        ("1g.23gb+me", 18, 20992),
        ("1g.45gb", 30, 45312),
        ("2g.45gb", 36, None),
        ("3g.90gb", 70, None),
        ("4g.90gb", 72, None),
        ("7g.180gb", 148, 182784),
    ),
    _model(
        "A30-24GB",
        (4, 4),
        _FOUR_SLICES,
        ("1g.6gb", 14, None),
        ("1g.6gb+me", 14, None),
        ("2g.12gb", 28, None),
        ("2g.12gb+me", 28, None),
        ("4g.24gb", 56, None),
    ),
)
