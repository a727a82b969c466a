"""What tests cost, written down as they run: each once, and what is done within another is not its own."""

from __future__ import annotations

from pathlib import Path

from hack.suite_cost import Book, Cost, read, table


def test_what_is_done_within_another_is_not_counted_twice(tmp_path: Path) -> None:
    book = Book(tmp_path)
    with book.measured("test", "t.py::test"), book.measured("fixture", "::site"):
        sum(range(100_000))
    book.close()
    fixture, test = read(tmp_path)
    assert (fixture.name, test.name) == ("::site", "t.py::test")
    assert 0 < fixture.cpu == fixture.own + fixture.children == test.within
    assert 0 <= test.cpu < test.own + test.children


def test_the_most_costly_come_first_and_a_test_is_shown_with_its_fixtures() -> None:
    costs = [
        Cost("test", "t.py::a", 1, 0, 3, 0),
        Cost("test", "t.py::b", 1, 1, 2, 1.5),
        Cost("fixture", "::f", 1, 0.5, 1, 0),
    ]
    lines = [" ".join(line.split()) for line in table(costs, 1)]
    at = lines.index("test")
    assert lines[at : at + 2] == ["test", "2.00 1.00 2.00 1 t.py::b"]
    assert "3.00 1.00 5.00 2 t.py" in lines
    assert "1.50 0.50 1.00 1 ::f" in lines
