"""Articles, as names of GPUs and of documents are said."""

import pytest

from solver.plan.words import with_article


@pytest.mark.parametrize(
    ("article", "nouns"),
    [
        ("an", "A100 H100-SXM5-80GB L40S MI300X RTX-A6000 NVIDIA-A40 image AccessPolicy island interactive SLO 8-GPU"),
        ("a", "B200 GH200 V100 T4 GPU URL MIG user unit service MigGeometry rack 1g.10gb 7g.80gb 16-GPU Tesla-V100"),
    ],
)
def test_a_name_has_the_article_that_it_is_said_with(article: str, nouns: str) -> None:
    assert [with_article(noun) for noun in nouns.split()] == [f"{article} {noun}" for noun in nouns.split()]


def test_only_the_first_word_counts() -> None:
    assert with_article("environment variable name") == "an environment variable name"
    assert with_article("MIG profile") == "a MIG profile"
