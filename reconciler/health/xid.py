"""What NVIDIA's driver means by the number of an XID, as far as it says who has to act.

Source: NVIDIA, "XID Errors" (GPU Deployment and Management Documentation), tables of XIDs and their recovery actions.
"""

from __future__ import annotations

from typing import Final, Literal

XidClass = Literal["application", "reset", "drain", "replace"]

CLASSES: Final[dict[int, XidClass]] = {
    13: "application",  # graphics engine exception
    31: "application",  # memory page fault
    43: "application",  # a channel was reset: the program's own fault
    45: "application",  # what ends with a program that had an error
    48: "reset",  # double bit error
    61: "reset",
    62: "reset",  # internal micro-controller halt
    63: "drain",  # a row was remapped, or a page retired
    64: "replace",  # a row could not be remapped
    74: "drain",  # NVLink error
    79: "drain",  # it has fallen off the bus
    94: "application",  # contained memory error
    95: "reset",  # uncontained memory error
    119: "reset",  # the GSP does not answer
    120: "reset",
}
