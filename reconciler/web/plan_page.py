"""What a change of policy would do, as a page: the whole comment, and before and after on the queue tree and on the racks.

As one file (`quorate plan --html`) it has no script and fetches nothing, and its policy lets a browser apply its own style alone.
"""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import takewhile
from typing import Any, Final

from markupsafe import Markup

from reconciler.analysis.reports.paths import Paths
from reconciler.analysis.reports.queue_sections import QUEUES_TITLE
from reconciler.analysis.reports.review_outline import outline_of
from reconciler.analysis.reports.review_problems import review_problems
from reconciler.model.review_findings import Entitlement, QueueChange, RackUse, Review
from reconciler.web.natural_order import natural
from reconciler.web.queue_tree import BAR_WIDTH, QueueBar
from reconciler.web.renderer import rendered

RACK_HEIGHT: Final = 28
"""Of the picture of a rack, in its own pixels."""


@dataclass(frozen=True, slots=True)
class ComparedQueue:
    """A line of the queue tree of which something differs. A bar None: it is not there under that revision."""

    path: str
    depth: int
    change: QueueChange
    before: QueueBar | None
    after: QueueBar | None


@dataclass(frozen=True, slots=True)
class ComparedRack:
    """A rack; heights of what is held of it under each revision. `label`: the part of its name in which racks differ."""

    use: RackUse
    label: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class ComparedBlock:
    """The racks of a block."""

    name: str
    racks: tuple[ComparedRack, ...]


def plan_file(found: Review, paths: Paths, cluster: str = "") -> str:
    """One HTML file. Pure: the same review is the same bytes."""
    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    # Markup: our own, and the policy above it is of just this text.
    return rendered("plan_file.html", style=Markup(style), digest=digest, **plan_values(found, paths, cluster))  # noqa: S704


def plan_values(found: Review, paths: Paths, cluster: str = "") -> dict[str, Any]:
    """What the template of a plan asks for, alone or within the console."""
    outline = outline_of(found, paths, str)
    return {
        "outline": outline._replace(sections=tuple(one for one in outline.sections if one.title != QUEUES_TITLE)),
        "problems": review_problems(found, paths),
        "queues": compared_queues(found.queues, paths),
        "blocks": compared_blocks(found.racks),
        "changed_racks": sorted((rack for rack in found.racks if rack.changed), key=_place),
        "cluster": cluster,
        "rack_height": RACK_HEIGHT,
    }


def compared_queues(changes: Sequence[QueueChange], paths: Paths) -> list[ComparedQueue]:
    """In the order of the tree; bars of one depth have one scale, so that they can be compared."""
    placed = sorted((paths.path(change.queue), change.gpu_type, change) for change in changes)
    longest = defaultdict[int, int](int)
    for path, _, change in placed:
        for side in (change.before, change.after):
            if side is not None:
                longest[path.count("/")] = max(longest[path.count("/")], side.guaranteed, side.fair_share, side.used)
    return [_compared(path, change, longest[path.count("/")]) for path, _, change in placed]


def _compared(path: str, change: QueueChange, longest: int) -> ComparedQueue:
    scale = BAR_WIDTH / longest if longest else 0.0
    return ComparedQueue(path, path.count("/"), change, _bar(change.before, scale), _bar(change.after, scale))


def _bar(side: Entitlement | None, scale: float) -> QueueBar | None:
    if side is None:
        return None
    inside = min(side.used, side.guaranteed)
    return QueueBar(inside * scale, (side.used - inside) * scale, side.guaranteed * scale, side.fair_share * scale)


def compared_blocks(racks: Sequence[RackUse]) -> list[ComparedBlock]:
    """Blocks and racks in natural order; a rack is full where all GPUs that it has under that revision are held."""
    by_block = defaultdict[str, list[RackUse]](list)
    alike = _alike([rack.rack for rack in racks if rack.rack])
    for rack in sorted(racks, key=_place):
        by_block[rack.block].append(rack)
    return [
        ComparedBlock(
            block,
            tuple(ComparedRack(rack, rack.rack[alike:] or rack.rack or "none", *_heights(rack)) for rack in of_block),
        )
        for block, of_block in by_block.items()
    ]


def _alike(names: Sequence[str]) -> int:
    """How many characters all names begin with alike. Numbers stay whole: rack-0007 is 0007."""
    first, last = min(names, default=""), max(names, default="")
    alike = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
    return len(alike.rstrip("0123456789"))


def _heights(rack: RackUse) -> tuple[float, float]:
    sides = (rack.held_before, rack.gpus_before), (rack.held_after, rack.gpus_after)
    before, after = (RACK_HEIGHT * held / gpus if gpus else 0.0 for held, gpus in sides)
    return before, after


def _place(rack: RackUse) -> tuple[object, ...]:
    return natural(rack.block), natural(rack.rack)


def _style() -> str:
    """The console's own."""
    return files("reconciler.web").joinpath("static", "console.css").read_text("utf-8")
