"""Each layer of a certificate is a sentence, which claims no more than is proven."""

from __future__ import annotations

import pytest

from reconciler.analysis.reports.layer_words import layer_lines
from solver.plan.plan import Certificate, LayerResult, ProofStatus


@pytest.mark.parametrize(
    ("name", "value", "bound", "status", "words"),
    [
        (
            "entitled.standard.0",
            812.0,
            830.25,
            "unproven",
            "Of standard jobs of the highest priority the plan serves 812 of at most 830.2 GPUs that queues are entitled to; "
            "no plan can serve more than that, and whether one serves as many is not known.",
        ),
        (
            "entitled.latency-critical.2.growth",
            4.0,
            4.0,
            "proven",
            "Of latency-critical jobs of priority rank 3, by which they grow, the plan serves 4 GPUs that queues are entitled to; "
            "no plan can serve more.",
        ),
        (
            "leftover.best-effort.1",
            99.0,
            100.0,
            "within-gap",
            "Of best-effort jobs of priority rank 2 the plan serves 99 of at most 100 GPUs in all, those beyond fair shares among "
            "them; no plan can serve more than that, and the policy allows the gap.",
        ),
        (
            "fit",
            -12.0,
            -3.5,
            "unproven",
            "The plan is 12 GPUs away from the types and the closeness that jobs wish for; no plan can do with less than 3.5.",
        ),
        (
            "type-weight",
            -12.0,
            0.0,
            "unproven",
            "The plan is 12 GPUs of weight above the lightest type, of jobs that name no type; whether less would do is not known.",
        ),
        (
            "entitled-harm.reclaim",
            -1.25,
            0.0,
            "unproven",
            "1.2 GPU-hours of work are lost by jobs that give back what their queues had borrowed; "
            "whether fewer would do is not known.",
        ),
        ("fair-harm.move", 0.0, 0.0, "proven", "No work is lost by jobs that move."),
    ],
)
def test_a_layer_is_a_sentence(name: str, value: float, bound: float, status: ProofStatus, words: str) -> None:
    (line,) = layer_lines(Certificate("mip", (LayerResult(name, value, bound, status),), 0.0, "highs", 0, columns=9))
    assert line == (name, words, status)


def test_without_a_program_a_bound_is_what_is_asked_for() -> None:
    layers = (LayerResult("fair.standard.0", 1.0, 9.0, "unproven"),)
    (line,) = layer_lines(Certificate("greedy", layers, 0.0, "", 0))
    assert line.words.endswith("which is all that is asked for; whether a plan can serve more is not known.")
