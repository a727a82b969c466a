"""Who asked what: told once the answer is another, forgotten once it does not ask any more."""

from __future__ import annotations

from reconciler.kubernetes.objects.dependency_index import DependencyIndex


def asking(asked: DependencyIndex[str, int], who: str, *questions: int) -> None:
    with asked.by(who):
        for question in questions:
            asked.note(question)


def test_only_who_asked_is_named() -> None:
    asked: DependencyIndex[str, int] = DependencyIndex()
    asking(asked, "a", 1, 2)
    asking(asked, "b", 2)
    asked.changed(1)
    assert asked.stale == {"a"}
    asked.changed(2)
    assert asked.stale == {"a", "b"}
    asking(asked, "a", 3)
    assert asked.stale == {"b"}
    asked.changed(1)
    assert asked.stale == {"b"}, "a asks something else now"
    asked.leave("b")
    assert asked.stale == set()


def test_a_question_is_dropped_once_nobody_asks_it() -> None:
    asked: DependencyIndex[str, int] = DependencyIndex()
    asking(asked, "a", 1, 2)
    asking(asked, "b", 2)
    asked.leave("a")
    assert asked.dropped() == {1}
    assert asked.dropped() == set()
    asked.leave("b")
    asking(asked, "c", 2)
    assert asked.dropped() == set(), "somebody else asks it meanwhile"
