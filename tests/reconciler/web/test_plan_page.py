"""The page of a plan: all that the comment says and more, the same bytes each time, and names that are names."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given, settings

from reconciler.analysis.reports.markdown import ROWS_MAX
from reconciler.analysis.reports.outline import Words
from reconciler.analysis.reports.paths import UNKNOWN
from reconciler.analysis.reports.plain_text import plain_of
from reconciler.analysis.reports.review_outline import outline_of
from reconciler.model.review_findings import QueueChange, RackUse, Review
from reconciler.web.plan_page import RACK_HEIGHT, compared_blocks, compared_queues, plan_file
from reconciler.web.queue_tree import BAR_WIDTH, QueueBar
from solver.model.document import decode, encode
from solver.model.quantities import MilliGpu
from solver.model.workload import JobName
from tests.reconciler.analysis.reports.reviews import PATHS, RANKING, gpus, job, moved_quota, of_strangers
from tests.reconciler.analysis.reports.strangers import HOSTILE, strangers

SCRIPTS = ("script", "img", "iframe", "object", "embed", "link", "base", "form", "a", "use", "image", "foreignobject")


def rack(name: str, before: int, after: int, *, comes: tuple[str, ...] = (), goes: tuple[str, ...] = ()) -> RackUse:
    """Of 16 GPUs."""
    moved = tuple(map(JobName, comes)), tuple(map(JobName, goes))
    return RackUse("block-1", name, gpus(16), gpus(16), gpus(before), gpus(after), *moved)


def with_racks(found: Review, *racks: RackUse) -> Review:
    return msgspec.structs.replace(found, racks=racks)


class Reader(HTMLParser):
    """What a browser would make of a page: its elements, their attributes, and its text apart from style."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text = list[str](), list[tuple[str, str, str | None]](), ""
        self._in_style = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        self._in_style |= tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._in_style &= tag != "style"

    def handle_data(self, data: str) -> None:
        self.text += "" if self._in_style else data


def test_it_says_all_that_the_outline_says() -> None:
    found = with_racks(moved_quota(), rack("r1", 16, 8, goes=("bert",)))
    text, outline = Reader(plan_file(found, PATHS, "eu-1")).text, outline_of(found, PATHS, str)
    said: list[Words] = [outline.headline, outline.verdict, *outline.footer]
    # Figures of queues stand beside their bars.
    for section in (one for one in outline.sections if not one.title.startswith("Queues")):
        assert f"{section.title} ({len(section.rows)})" in text
        said += [cell for row in section.rows for cell in row] + [section.note]
    assert [plain_of(words) for words in said if plain_of(words) not in text] == []
    assert "on eu-1" in text
    assert "policies/scheduling.yaml:9, error: 13.8 GPU-hours of work would be lost, at most 10." in text
    for figures in ("96 → 64", "64 → 32", "no limit → 64"):
        assert figures in text


def test_nothing_is_folded_away() -> None:
    jobs = tuple(job(f"waits-{number:04}", RANKING, 8, "waits", "waits", starts=(6, 6)) for number in range(1_000))
    text = Reader(plan_file(msgspec.structs.replace(moved_quota(), jobs=jobs), PATHS)).text
    assert ROWS_MAX < len(set(re.findall(r"waits-\d{4}", text))) == 1_000


def test_the_same_review_is_the_same_bytes() -> None:
    found = with_racks(moved_quota(), rack("r1", 16, 8))
    again = decode(encode(found), Review)
    assert plan_file(found, PATHS) == plan_file(again, PATHS)


def test_its_policy_allows_its_own_style_and_nothing_else() -> None:
    page = plan_file(with_racks(moved_quota(), rack("r1", 16, 8)), PATHS)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert (
        html.unescape(policy) == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    # A policy counts for what comes after it.
    assert page.index("http-equiv") < page.index("<title>") < page.index("<style>")
    seen = Reader(page)
    assert not set(seen.tags) & set(SCRIPTS)
    assert [each for each in seen.attributes if each[1] in ("style", "src", "href") or each[1].startswith("on")] == []
    assert "url(" not in style
    assert "@import" not in style


@settings(max_examples=30)
@given(strangers)
def test_names_are_text_and_nothing_else(names: list[str]) -> None:
    def seen(given: list[str]) -> Reader:
        found, text = of_strangers(given), given[0]
        racks = RackUse(text, text, gpus(8), gpus(8), gpus(0), gpus(8), (JobName(text),), (JobName(text),))
        page = plan_file(with_racks(found, racks), UNKNOWN, text)
        page.encode()  # Surrogates of names are spelled out.
        return Reader(page)

    found, plain = seen(names), seen(["name"])
    assert found.tags == plain.tags
    assert [(tag, name) for tag, name, _ in found.attributes] == [(tag, name) for tag, name, _ in plain.attributes]


@pytest.mark.parametrize("name", HOSTILE)
def test_what_reverses_or_hides_text_is_spelled_out(name: str) -> None:
    text = Reader(plan_file(of_strangers([name]), UNKNOWN, name)).text
    assert all(char.isprintable() or char == "\n" for char in text)


def test_bars_of_one_depth_have_one_scale() -> None:
    (line,) = moved_quota().queues
    new = QueueChange(RANKING, line.gpu_type, None, line.after)
    ranking, vision = compared_queues((line, new), PATHS)
    unit = BAR_WIDTH / gpus(96)
    assert (vision.path, vision.depth) == ("research/vision", 1)
    assert vision.before == pytest.approx(QueueBar(gpus(64) * unit, gpus(32) * unit, gpus(64) * unit, gpus(64) * unit))
    assert vision.after == pytest.approx(QueueBar(gpus(32) * unit, gpus(32) * unit, gpus(32) * unit, gpus(32) * unit))
    assert (ranking.path, ranking.before, ranking.after) == ("product/ranking", None, vision.after)


def test_racks_stand_in_natural_order_and_those_that_differ_are_marked() -> None:
    racks = (rack("r10", 16, 16), rack("r2", 16, 4, comes=("in",), goes=("out",)), rack("r1", 0, 0))
    (block,) = compared_blocks(racks)
    assert [(one.use.rack, one.label) for one in block.racks] == [("r1", "1"), ("r2", "2"), ("r10", "10")]
    assert [(one.before, one.after) for one in block.racks] == [
        (0, 0), (RACK_HEIGHT, RACK_HEIGHT / 4), (RACK_HEIGHT, RACK_HEIGHT)
    ]  # fmt: skip
    page = plan_file(with_racks(moved_quota(), *racks), PATHS)
    assert page.count('<li class="changed">') == 1
    assert "1 with a frame differs" in page
    (row,) = re.findall(r'<tr><th scope="row"><bdi>r2</bdi></th>.*<bdi>in</bdi></td>.*</tr>', page)
    assert "16 → <b>4</b>" in row
    assert "<bdi>out</bdi>" in row


def test_a_rack_without_gpus_under_one_revision_is_empty_there() -> None:
    new = RackUse("", "r1", MilliGpu(0), gpus(8), MilliGpu(0), gpus(8))
    ((only,),) = (block.racks for block in compared_blocks((new,)))
    assert (only.before, only.after, new.changed) == (0, RACK_HEIGHT, True)
