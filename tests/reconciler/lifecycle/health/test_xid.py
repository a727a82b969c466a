"""XIDs by what has to be done; rows read off NVIDIA's catalog, each with the bucket that it names there."""

from __future__ import annotations

import pytest

from reconciler.lifecycle.health import xid
from reconciler.lifecycle.health.xid import CLASS_OF_XID, XidClass, class_of_xid


@pytest.mark.parametrize(
    ("number", "bucket", "expected"),
    [
        (13, "RESTART_APP", "application"),
        (31, "RESTART_APP", "application"),
        (43, "IGNORE", "application"),
        (45, "WORKFLOW_XID_45", "application"),
        (48, "WORKFLOW_XID_48", "reset"),
        (62, "RESET_GPU", "reset"),
        (63, "IGNORE", "application"),
        (64, "RESET_GPU, and a new one", "replace"),
        (74, "WORKFLOW_NVLINK_ERR", "drain"),
        (79, "RESTART_BM", "drain"),
        (94, "RESTART_APP", "application"),
        (95, "RESET_GPU", "reset"),
        (119, "RESET_GPU", "reset"),
        (151, "RESTART_VM", "drain"),
        (154, "informational", "application"),
        (158, "RESET_GPU", "reset"),
    ],
)
def test_an_xid_is_of_the_class_of_its_bucket(number: int, bucket: str, expected: XidClass) -> None:
    assert class_of_xid(number) == expected, bucket


def test_no_xid_has_two_classes() -> None:
    listed = [*xid._APPLICATION, *xid._RESET, *xid._DRAIN, *xid._REPLACE]
    assert len(listed) == len(set(listed)) == len(CLASS_OF_XID)


def test_what_nobody_knows_is_looked_at_before_more_work_goes_there() -> None:
    assert class_of_xid(9_999) == "drain"
    assert 171 not in CLASS_OF_XID, "the catalog names no action for an uncorrectable error of memory"
