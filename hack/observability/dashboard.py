"""Makes deploy/observability/dashboard.json: `python -m hack.observability.dashboard`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import common, prometheus, stat, timeseries
from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable
from grafana_foundation_sdk.builders.dashboard import Row as RowBuilder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import StackingMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef, GridPos, VariableRefresh

from hack.observability.panels import ROWS, Panel

SHIPPED: Final = Path(__file__).resolve().parents[2] / "deploy/observability/dashboard.json"
_WIDTH: Final = 24
"""Of Grafana's grid."""
_SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")


def dashboard_json() -> str:
    """As it is shipped."""
    made = (
        Dashboard("Quorate")
        .uid("quorate")
        .description("GPUs, queues, jobs and the control plane of Quorate.")
        .tags(["quorate"])
        .time("now-6h", "now")
        .refresh("1m")
        .readonly()
        .with_variable(DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for name, label in (("queue", "Queue"), ("gpu_type", "GPU type")):
        made = made.with_variable(_choice(name, label))
    top, number = 0, 0
    for row in ROWS:
        made = made.with_row(RowBuilder(row.title).id(100 + top).grid_pos(GridPos(h=1, w=_WIDTH, x=0, y=top)))
        top += 1
        left, height = 0, 0
        for panel in row.panels:
            number += 1
            wide, high = (4, 8) if panel.single else (8, 8)
            if left + wide > _WIDTH:
                left, top = 0, top + height
            made = made.with_panel(_built(panel, number, GridPos(h=high, w=wide, x=left, y=top)))
            left, height = left + wide, high
        top += height
    return json.dumps(json.loads(JSONEncoder(sort_keys=True).encode(made.build())), indent=1, sort_keys=True) + "\n"


def _choice(name: str, label: str) -> QueryVariable:
    return (
        QueryVariable(name)
        .label(label)
        .datasource(_SOURCE)
        .query(f"label_values(quorate_queue_gpus_held, {name})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
    )


def _built(panel: Panel, number: int, where: GridPos) -> stat.Panel | timeseries.Panel:
    made = stat.Panel() if panel.single else _course(panel)
    made = (
        made.id(number).title(panel.title).description(panel.text).unit(panel.unit).datasource(_SOURCE).grid_pos(where)
    )
    for place, curve in enumerate(panel.curves):
        query = prometheus.Dataquery().expr(curve.expr).legend_format(curve.legend).ref_id(chr(ord("A") + place))
        made = made.with_target(query.datasource(_SOURCE))
    return made


def _course(panel: Panel) -> timeseries.Panel:
    made = timeseries.Panel().min(0).fill_opacity(40 if panel.stacked else 5)
    if panel.stacked:
        made = made.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    return made


if __name__ == "__main__":
    SHIPPED.write_text(dashboard_json())
