"""What GPUs could do at most: floating point operations a second by type, for the MFU of jobs that report theirs.

Dense bf16 of the makers' data sheets. A sheet also prints figures for sparse matrices, which are twice as high and meant by no MFU.
A type that is not in the table has no peak, and a job on it no MFU: no other type's is taken for it. Policy states others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from solver.model.cluster import GpuType
from solver.policy.policy import GpuPeak

TERA: Final = 1e12

BF16_TFLOPS: Final[dict[str, float]] = {
    "A100-PCIe": 312,
    "A100-SXM4": 312,
    "B200": 2_250,
    "H100-NVL": 835,
    "H100-PCIe": 756,
    "H100-SXM5": 989.4,
    "H200-SXM5": 989.4,
    "L40S": 362,
}
"""By how names of types begin."""

PeakOf = Callable[[GpuType], float | None]
"""Floating point operations a second of a GPU of a type; None: not known."""


def peaks_of(stated: Iterable[GpuPeak]) -> PeakOf:
    """What policy states, and the table for other types."""
    own = {known.gpu_type: known.tflops for known in stated}

    def peak_of(gpu_type: GpuType) -> float | None:
        tflops = own.get(gpu_type) or next(
            (known for name, known in BF16_TFLOPS.items() if gpu_type == name or gpu_type.startswith(f"{name}-")), None
        )
        return None if tflops is None else tflops * TERA

    return peak_of
