"""What has to be done about an XID, the number of an error that NVIDIA's driver reports of a GPU.

Source: NVIDIA, "XID Errors", "Analyzing Xid Errors with the Xid Catalog", column "Resolution Bucket (Immediate Action)", for Ampere
and newer (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, as of September 2026). Its buckets become four classes:

- application: IGNORE, RESTART_APP, and what only goes with another XID (45, 154). The GPU is well; a task on it may have to begin
  anew.
- reset: RESET_GPU, the workflow of 48, and 159. Nothing may start on the GPU until it was reset, or its node restarted.
- drain: whatever needs a restart of the node, its cables, new software or a look at NVLink: RESTART_BM, RESTART_VM,
  CHECK_MECHANICALS, UPDATE_SWFW, CONTACT_SUPPORT, WORKFLOW_NVLINK_ERR, WORKFLOW_NVLINK5_ERR.
- replace: 64, a row of memory that could not be remapped. The catalog resets such a GPU first, but a failed remapping is what
  entitles to a new one (NVIDIA, "GPU Memory Error Management", RMA policy), and a reset brings no spare rows back.
"""

from __future__ import annotations

from typing import Final, Literal

XidClass = Literal["application", "reset", "drain", "replace"]

_APPLICATION: Final = (
    *(8, 11, 13, 14, 25, 31, 32, *range(37, 42), 43, 44, 45, 60, 63, *range(66, 73), 75, 76, 77, 80),
    *(82, 83, 84, 85, 86, 88, 89, 92, 93, 94, *range(96, 109), 121, *range(126, 136), 137, 139, 141),
    *(152, 153, 154, 157, 160, 161),
)
_RESET: Final = (46, 48, 62, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, 159)
_DRAIN: Final = (54, 74, 78, 79, 142, *range(144, 152))
_REPLACE: Final = (64,)

CLASS_OF_XID: Final[dict[int, XidClass]] = {
    **dict.fromkeys(_APPLICATION, "application"),
    **dict.fromkeys(_RESET, "reset"),
    **dict.fromkeys(_DRAIN, "drain"),
    **dict.fromkeys(_REPLACE, "replace"),
}
"""Every XID for which the catalog names an action."""

UNKNOWN: Final[XidClass] = "drain"
"""Of what the catalog does not know, or names no action for, an operator has to find out what it is before more work goes there."""


def class_of_xid(number: int) -> XidClass:
    """What has to be done about it."""
    return CLASS_OF_XID.get(number, UNKNOWN)
