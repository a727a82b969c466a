"""JUnit XML: what it says, and that a parser reads it whatever the names are."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from reconciler.analysis.reports.junit import JunitCase, junit
from reconciler.analysis.reports.plain_text import printable

TEXT = st.text(st.characters(), max_size=30)
"""Any code points at all, lone surrogates and control characters with them."""


def test_a_suite() -> None:
    said = junit(
        "policy tests",
        [
            JunitCase("vision", "starts", None, 0.25),
            JunitCase("vision", "never evicted", "evicted at 5m\nfor b <1>", 1.0),
        ],
    )
    assert said == (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<testsuites name="policy tests" tests="2" failures="1" errors="0">\n'
        '  <testsuite name="policy tests" tests="2" failures="1" errors="0" time="1.250">\n'
        '    <testcase classname="vision" name="starts" time="0.250" />\n'
        '    <testcase classname="vision" name="never evicted" time="1.000">\n'
        '      <failure message="evicted at 5m">evicted at 5m\nfor b &lt;1&gt;</failure>\n'
        "    </testcase>\n"
        "  </testsuite>\n"
        "</testsuites>\n"
    )


@given(TEXT, st.lists(st.builds(JunitCase, TEXT, TEXT, TEXT | st.none())))
def test_a_parser_reads_it_back(name: str, cases: list[JunitCase]) -> None:
    said = junit(name, cases)
    root = ElementTree.fromstring(said.encode())
    found = root.findall("./testsuite/testcase")
    assert [case.find("failure") is not None for case in found] == [case.failure is not None for case in cases]
    assert [case.get("name") for case in found] == [printable(case.name) for case in cases]


def test_what_xml_can_not_carry_is_spelled_out() -> None:
    said = junit("a\x00b", [JunitCase("c\x1b[31m", "n\ud800\ufffe", "f\x08\u202e")])
    root = ElementTree.fromstring(said.encode())
    assert root.get("name") == "a\\x00b"
    assert [(case.get("classname"), case.get("name")) for case in root.iter("testcase")] == [
        ("c\\x1b[31m", "n\\xd800\\xfffe")
    ]
    assert [failure.text for failure in root.iter("failure")] == ["f\\x08\\x202e"]
