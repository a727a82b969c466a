"""HealthPolicy documents: one of them, compiled beside what rounds read, and what is refused."""

from __future__ import annotations

import pytest

from reconciler.gitops.review.meaning import document_changes
from reconciler.model.health_policy import HealthPolicy, NicRule, StragglerRule, XidActions
from solver.model.quantities import Duration
from tests.reconciler.documents.repository import POOL, codes, queue, reading

FILES = {"policies/a.yaml": queue("a", "{}"), "cluster-state/big.yaml": POOL}


def policy(spec: str, name: str = "health") -> str:
    return f"apiVersion: quorate.dev/v1\nkind: HealthPolicy\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def test_it_is_compiled_beside_what_rounds_read_and_shown_in_a_review() -> None:
    spec = "{xid: {application: suspect}, straggler: {for: 5m, several: drain}, nic: {names: [ib0]}, badNodeTtl: 2d}"
    before, after = reading(FILES).checked(), reading(FILES | {"policies/h.yaml": policy(spec)}).checked()
    assert before.operations.health is None
    assert after.operations.health == HealthPolicy(
        xid=XidActions(application="suspect"),
        straggler=StragglerRule(several="drain", held=Duration(300_000)),
        nic=NicRule(("ib0",)),
        bad_node_ttl=Duration(2 * 86_400_000),
        origin="policies/h.yaml:3",
    )
    assert after.policy == before.policy
    (change,) = document_changes(before, after)
    assert (change.document, change.change, change.origin) == ("HealthPolicy", "added", "policies/h.yaml:3")
    changed = reading(FILES | {"policies/h.yaml": policy(spec.replace("5m", "6m"), "renamed")}).checked()
    (change,) = document_changes(after, changed)
    assert [(field.field, field.before, field.after) for field in change.fields] == [("straggler.for", "5m", "6m")]


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ("{}", []),
        ("{xid: {reset: reboot}}", [("h.yaml:4:21", "unknown-value")]),
        ("{straggler: {action: drain}}", [("h.yaml:4:28", "unknown-value")]),
        ("{straggler: {belowMedian: 1}}", [("h.yaml:4:33", "out-of-range")]),
        ("{stragglr: {}}", [("h.yaml:4:8", "unknown-field")]),
        ("{nic: {downFor: 2m}}", [("h.yaml:4:13", "unused-rule")]),
        ("{throttle: {for: 2h}}", [("h.yaml:4:24", "forgotten-too-soon")]),
        ("{nodeLease: 9s}", [("h.yaml:4:19", "lease-too-short")]),
        ("{nodeLease: 5m}", [("h.yaml:4:19", "lost-before-lease")]),
        ('{conditions: [{type: Ready, status: ["False", Unknown], for: 2m, action: drain}]}', []),
        ("{conditions: [{type: Ready, action: suspect}]}", [("h.yaml:4:21", "condition-of-well-nodes")]),
        (
            '{conditions: [{type: DiskPressure, status: ["False"], action: cordon}]}',
            [("h.yaml:4:21", "condition-of-well-nodes")],
        ),
        ("{conditions: [{type: XIDError, action: drain}, {type: XIDError, action: suspect}]}", []),
        (
            "{conditions: [{type: XIDError, action: drain}, {type: XIDError, for: 1m, action: drain}]}",
            [("h.yaml:4:54", "second-rule")],
        ),
        ("{conditions: [{type: XIDError, state: [], action: drain}]}", [("h.yaml:4:38", "unknown-field")]),
        ("{conditions: [{type: XIDError, for: 2h, action: drain}]}", [("h.yaml:4:43", "forgotten-too-soon")]),
        ("{taints: [{key: a/b, action: drain}, {key: a/b, action: drain}]}", [("h.yaml:4:44", "second-rule")]),
        ("{taints: [{key: a b, action: drain}]}", [("h.yaml:4:23", "malformed")]),
        ("{labels: [{key: a/b, values: [x], action: drain}, {key: a/b, values: [y], action: drain}]}", []),
        ("{badNodeTtl: 4m, suspectTtl: 20m}", [("h.yaml:4:7", "forgotten-too-soon")]),
    ],
)
def test_what_is_refused(spec: str, problems: list[tuple[str, str]]) -> None:
    assert sorted(set(codes(FILES | {"policies/h.yaml": policy(spec)}))) == problems


def test_what_is_forgotten_too_soon_is_named_also_where_it_is_a_default() -> None:
    found = reading(FILES | {"policies/h.yaml": policy("{badNodeTtl: 7m}")}).problems
    assert {(problem.message, problem.fix) for problem in found} == {
        (
            f"{field}.for is 10m, and what is found after so long counts for 7m alone",
            f"Lower {field}.for, or raise suspectTtl and badNodeTtl.",
        )
        for field in ("straggler", "throttle")
    }


def test_a_second_one_is_refused() -> None:
    files = FILES | {"policies/h.yaml": policy("{}"), "policies/i.yaml": policy("{}", "other")}
    assert codes(files) == [("i.yaml:2:7", "second-health-policy")]
