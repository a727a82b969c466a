"""MigGeometry documents: what they declare, and every way in which they can be wrong beside their pools."""

from __future__ import annotations

import pytest

from reconciler.documents.files import Files
from reconciler.documents.repository import read_repository
from solver.model.cluster import MigInstance

POOL = """apiVersion: quorate.dev/v1
kind: NodePool
metadata: {{name: small}}
spec: {{gpuType: {type}, gpusPerNode: 2, cpu: 8, memory: 64Gi, nodes: {{names: [n1]}}{more}}}
"""
GEOMETRY = """apiVersion: quorate.dev/v1
kind: MigGeometry
metadata: {{name: {name}}}
spec: {spec}
"""
SHARING = """apiVersion: quorate.dev/v1
kind: SharingPolicy
metadata: {name: s}
spec: {pools: [small], mode: mps}
"""


def files(spec: str, *, gpu_type: str = "H100-SXM5-80GB", more: str = "", extra: dict[str, str] | None = None) -> Files:
    written = {
        "cluster-state/small.yaml": POOL.format(type=gpu_type, more=more),
        "policies/mig.yaml": GEOMETRY.format(name="one", spec=spec),
        **(extra or {}),
    }
    return Files({path: text.encode() for path, text in written.items()}, ())


def codes(spec: str, **given: object) -> set[str]:
    return {problem.code for problem in read_repository(files(spec, **given)).problems}  # type: ignore[arg-type]


def test_fixed_layouts_are_what_declared_gpus_have() -> None:
    compiled = read_repository(files("{pool: small, mode: fixed, layouts: [3g.40gb + 2g.20gb]}")).checked()
    (node,) = compiled.nodes
    assert node.gpus[0].instances == (MigInstance("3g.40gb", 0), MigInstance("2g.20gb", 4))
    assert node.gpus[1].instances is None
    assert [known.model for known in compiled.policy.mig] == ["H100-80GB"]


def test_a_pool_may_say_its_model() -> None:
    compiled = read_repository(files("{pool: small, mode: free}", gpu_type="X", more=", migModel: A30-24GB")).checked()
    assert [(known.model, known.changes_max) for known in compiled.policy.mig] == [("A30-24GB", 8)]


@pytest.mark.parametrize(
    ("code", "spec", "given"),
    [
        ("unknown-pool", "{pool: smal, mode: free}", {}),
        ("unknown-mig-model", "{pool: small, mode: free}", {"gpu_type": "H100"}),
        ("not-in-this-mode", "{pool: small, mode: free, layouts: [7x 1g.10gb]}", {}),
        ("not-in-this-mode", "{pool: small, mode: fixed, layouts: [7x 1g.10gb], changes: {perPoolPerHour: 1}}", {}),
        ("missing-field", "{pool: small, mode: bounded}", {}),
        ("layout", "{pool: small, mode: bounded, layouts: [7 1g.10gb]}", {}),
        ("unknown-mig-profile", "{pool: small, mode: bounded, layouts: [7x 1g.5gb]}", {}),
        ("impossible-layout", "{pool: small, mode: bounded, layouts: [8x 1g.10gb]}", {}),
        ("impossible-layout", "{pool: small, mode: bounded, layouts: [4g.40gb + 4g.40gb]}", {}),
        ("too-many-layouts", "{pool: small, mode: fixed, layouts: [7g.80gb, 7g.80gb, 7g.80gb]}", {}),
        ("shared-and-partitioned", "{pool: small, mode: free}", {"extra": {"policies/s.yaml": SHARING}}),
        (
            "duplicate-pool",
            "{pool: small, mode: free}",
            {"extra": {"policies/two.yaml": GEOMETRY.format(name="two", spec="{pool: small, mode: free}")}},
        ),
        (
            "two-mig-models",
            "{pool: small, mode: free}",
            {
                "extra": {
                    "cluster-state/b.yaml": POOL.format(type="H100-SXM5-80GB", more=", migModel: A30-24GB")
                    .replace("name: small", "name: other")
                    .replace("n1", "n2"),
                    "policies/two.yaml": GEOMETRY.format(name="two", spec="{pool: other, mode: free}"),
                }
            },
        ),
    ],
)
def test_what_is_wrong_is_said(code: str, spec: str, given: dict[str, object]) -> None:
    assert codes(spec, **given) == {code}
