"""Draws the dashboard's panels from a Prometheus, for who has no Grafana: an HTML page with SVG.

    python -m hack.observability.picture --prometheus http://localhost:9090 --minutes 15 panels.html
    chromium --headless --no-sandbox --window-size=1260,1500 --screenshot=panels.png panels.html

It shows what the expressions say, and not what Grafana makes of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode
from urllib.request import urlopen

import click

from hack.observability.panels import ROWS, Curve, Panel

WIDTH, HEIGHT = 400, 150
STEPS: Final = 120
COLOURS: Final = ("#1b5e9b", "#b4540a", "#2e7d32", "#8e24aa", "#c62828", "#00838f", "#6d4c41", "#546e7a", "#9e9d24")
STYLE: Final = """
body { font: 13px sans-serif; margin: 12px; width: 1236px } h2 { font-size: 15px; margin: 14px 0 6px }
.row { display: flex; flex-wrap: wrap; gap: 12px } .panel { width: 400px; border: 1px solid #ccc; border-radius: 3px }
.panel h3 { font-size: 13px; margin: 6px 8px } .legend { font-size: 11px; margin: 2px 8px 6px; line-height: 1.5 }
.big { font-size: 44px; text-align: center; padding: 46px 0 60px } .none { color: #777; text-align: center; padding: 60px 0 }
text { font: 10px sans-serif; fill: #666 } line { stroke: #ddd }
"""


class Drawn(NamedTuple):
    """A series: its name, and its values by time."""

    name: str
    values: tuple[tuple[float, float], ...]


def asked(prometheus: str, curve: Curve, start: float, end: float) -> Iterator[Drawn]:
    """What a curve shows."""
    step = max(1, round((end - start) / STEPS))
    expr = curve.expr.replace("$__rate_interval", "1m").replace("$queue", ".*").replace("$gpu_type", ".*")
    query = urlencode({"query": expr, "start": start, "end": end, "step": step})
    with urlopen(f"{prometheus}/api/v1/query_range?{query}", timeout=30) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    for series in found:
        name = curve.legend
        for label, value in series["metric"].items():
            name = name.replace(f"{{{{{label}}}}}", value)
        values = tuple((float(at), float(value)) for at, value in series["values"] if value != "NaN")
        if values:
            yield Drawn(name, values)


def picture(panel: Panel, series: Sequence[Drawn], start: float, end: float) -> str:
    """One panel."""
    if not series:
        return '<div class="none">no data</div>'
    if panel.single:
        return f'<div class="big">{series[0].values[-1][1]:g}</div>'
    bases: dict[float, float] = {}
    lines: list[list[tuple[float, float]]] = []
    for one in series:
        lines.append([(at, value + (bases.get(at, 0.0) if panel.stacked else 0.0)) for at, value in one.values])
        bases |= dict(lines[-1])
    most = max((value for line in lines for _, value in line), default=0.0) or 1.0

    def place(at: float, value: float) -> str:
        return f"{46 + (at - start) / (end - start) * (WIDTH - 56):.1f},{HEIGHT - 8 - value / most * (HEIGHT - 20):.1f}"

    drawn = "".join(
        f'<polyline fill="none" stroke-width="1.8" stroke="{COLOURS[number % len(COLOURS)]}" '
        f'points="{" ".join(place(*point) for point in line)}"/>'
        for number, line in enumerate(lines)
    )
    scale = "".join(
        f'<line x1="46" x2="{WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}"/><text x="42" y="{y + 3:.1f}" text-anchor="end">{label}</text>'
        for part in (0, 0.5, 1)
        for y, label in [(HEIGHT - 8 - part * (HEIGHT - 20), in_words(part * most, panel.unit))]
    )
    legend = " &nbsp; ".join(
        f'<span style="color:{COLOURS[number % len(COLOURS)]}">&#9644;</span> {escape(one.name)}'
        for number, one in enumerate(series)
    )
    return f'<svg width="{WIDTH - 2}" height="{HEIGHT}">{scale}{drawn}</svg><div class="legend">{legend}</div>'


def in_words(value: float, unit: str) -> str:
    """A value on the scale."""
    match unit:
        case "percentunit":
            return f"{100 * value:.0f}%"
        case "bytes":
            return f"{value / 2**30:.0f} GiB"
        case "s":
            return f"{value:.3g} s"
        case _:
            return f"{value:.3g}"


@click.command()
@click.option("--prometheus", required=True, help="Its URL.")
@click.option("--minutes", type=float, default=15.0, show_default=True, help="Up to now.")
@click.argument("page", type=click.Path(dir_okay=False, path_type=Path))
def main(prometheus: str, minutes: float, page: Path) -> None:
    """Ask for each panel, and write PAGE."""
    end = time.time()
    start = end - 60 * minutes
    parts = [f"<!doctype html><meta charset=utf-8><title>Quorate</title><style>{STYLE}</style>"]
    for row in ROWS:
        parts.append(f'<h2>{escape(row.title)}</h2><div class="row">')
        for panel in row.panels:
            series = [drawn for curve in panel.curves for drawn in asked(prometheus, curve, start, end)]
            parts.append(f'<div class="panel"><h3>{escape(panel.title)}</h3>{picture(panel, series, start, end)}</div>')
        parts.append("</div>")
    page.write_text("".join(parts))


if __name__ == "__main__":
    main()
