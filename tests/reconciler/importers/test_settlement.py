"""Whatever tree an importer draws, what is written of it is valid; and names are such that documents can have."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from reconciler.documents.files import Files
from reconciler.documents.repository import read_repository
from reconciler.importers.draft import PolicyDraft, QueueDraft, QuotaDraft, ranked_values
from reconciler.importers.settlement import settle
from reconciler.importers.slugs import Slugs, slug
from reconciler.importers.text import files_of, memory_text
from tests.drawn import worlds

AMOUNTS = st.none() | st.fractions(min_value=0, max_value=40) | st.integers(0, 3_000_000).map(Fraction)
ENTRIES = st.builds(QuotaDraft, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
QUOTAS = st.dictionaries(st.sampled_from(["H100", "A100", "cpu", "memory"]), ENTRIES)
WEIGHTS = st.none() | st.fractions(min_value="0.001", max_value=30_000)


@st.composite
def drafts(draw: st.DrawFn) -> PolicyDraft:
    draft = PolicyDraft()
    for number in range(draw(st.integers(1, 7))):
        above = draw(st.integers(-1, number - 1))
        parent = f"q{above}" if above >= 0 else None
        draft.add(QueueDraft(f"q{number}", parent, draw(QUOTAS), draw(WEIGHTS), ["From somewhere."]))
    return draft


@worlds(200)
@given(drafts())
def test_any_draft_is_written_as_valid_documents(draft: PolicyDraft) -> None:
    settle(draft)
    reading = read_repository(Files({path: text.encode() for path, text in files_of(draft).items()}))
    # A few bytes of memory are what was drawn.
    assert [str(problem) for problem in reading.problems if problem.code != "bare-size"] == []


def test_guarantees_above_a_ceiling_are_cut_in_proportion_and_it_is_said() -> None:
    draft = PolicyDraft()
    draft.add(QueueDraft("top", quota={"H100": QuotaDraft(max=Fraction(8))}))
    for name, number in (("a", 12), ("b", 4)):
        draft.add(QueueDraft(name, "top", {"H100": QuotaDraft(Fraction(number), max=Fraction(20))}))
    settle(draft)
    assert [draft.queues[name].quota["H100"].guaranteed for name in "ab"] == [6, 2]
    assert draft.queues["a"].quota["H100"].max == 8
    assert (
        "a",
        "guaranteed 12 H100 is cut to 6 H100: a max of it or of a queue above it allows no more",
    ) in draft.adjustments


@given(st.lists(st.text(max_size=90), unique=True, max_size=20))
def test_names_are_valid_and_each_is_given_once(wanted: list[str]) -> None:
    names = Slugs("Queue")
    given_names = [names.of(each) for each in wanted]
    assert len(set(given_names)) == len(wanted)
    assert all(slug(name) == name for name in given_names)
    assert [names.of(each) for each in wanted] == given_names


def test_values_that_are_too_large_keep_their_order_by_rank() -> None:
    assert ranked_values([5, -5]) == {5: 5, -5: -5}
    assert ranked_values([10**9, 7, 7]) == {7: 10, 10**9: 20}


@given(st.integers(0, 10**18))
def test_memory_is_written_as_so_many_bytes(size: int) -> None:
    written = str(memory_text(Fraction(size)))
    units = {"Ti": 40, "Gi": 30, "Mi": 20, "Ki": 10}
    number, power = (written[:-2], units[written[-2:]]) if written[-2:] in units else (written, 0)
    assert int(number) << power == size
