"""What the dashboard shows: titles, units and expressions. Names of metrics are those of docs/metrics.md; a test holds that."""

from __future__ import annotations

from typing import Final, NamedTuple


class Curve(NamedTuple):
    """One expression, and how its series are called."""

    expr: str
    legend: str = ""


class Panel(NamedTuple):
    """`unit`: Grafana's word. `stacked`: the series add up to a whole. `single`: the latest value is shown, and no course."""

    title: str
    text: str
    unit: str
    curves: tuple[Curve, ...]
    stacked: bool = False
    single: bool = False


class Row(NamedTuple):
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


_OF_TYPE: Final = '{gpu_type=~"$gpu_type"}'
_OF_QUEUE: Final = '{queue=~"$queue"}'
_OF_BOTH: Final = '{queue=~"$queue",gpu_type=~"$gpu_type"}'
"""What the reader has chosen."""
_RANGE: Final = "$__rate_interval"


def _quantile(quantile: float, metric: str, by: str) -> str:
    return f"histogram_quantile({quantile}, sum by (le, {by}) (rate({metric}_bucket[{_RANGE}])))"


def _own(metric: str) -> str:
    """Of the leader, as others stand by with what they saw last."""
    return f"({metric} and on (instance) quorate_leader == 1)"


ROWS: Final = (
    Row(
        "Cluster",
        (
            Panel(
                "Leaders",
                "Control planes that decide rounds. One, or nothing is decided.",
                "short",
                (Curve("sum(quorate_leader)"),),
                single=True,
            ),
            Panel(
                "Policy not in force",
                "1 where a newer revision in Git is not put in force: `quorate status` says why.",
                "short",
                (Curve("max(quorate_policy_stalled)"),),
                single=True,
            ),
            Panel(
                "Jobs",
                "Jobs that hold what they need, and jobs that wait.",
                "short",
                (
                    Curve(f"sum({_own('quorate_jobs_running')})", "running"),
                    Curve(f"sum({_own('quorate_jobs_pending')})", "pending"),
                ),
            ),
            Panel(
                "GPUs by state",
                "All GPUs of the chosen types.",
                "short",
                (Curve(f"sum by (state) ({_own('quorate_gpus' + _OF_TYPE)})", "{{state}}"),),
                stacked=True,
            ),
            Panel(
                "Allocated and active",
                "Allocated of the healthy GPUs, and how active those are that are measured. The gap is held and not used.",
                "percentunit",
                (
                    Curve(f"{_own('quorate:gpus_allocated:ratio')}", "allocated {{gpu_type}}"),
                    Curve(f"{_own('quorate:gpus_active:ratio')}", "active {{gpu_type}}"),
                ),
            ),
            Panel(
                "Stranded GPUs",
                "Free GPUs that no known shape could use where they are.",
                "short",
                (Curve(f"sum by (gpu_type) ({_own('quorate_gpus_stranded' + _OF_TYPE)})", "{{gpu_type}}"),),
            ),
        ),
    ),
    Row(
        "Queues",
        (
            Panel(
                "Held",
                "GPUs held by each queue with those below it.",
                "short",
                (Curve(f"sum by (queue) ({_own('quorate_queue_gpus_held' + _OF_BOTH)})", "{{queue}}"),),
            ),
            Panel(
                "Guaranteed and fair share",
                "What each queue is due: always, and while idle capacity is divided.",
                "short",
                (
                    Curve(
                        f"sum by (queue) ({_own('quorate_queue_gpus_guaranteed' + _OF_BOTH)})", "{{queue}} guaranteed"
                    ),
                    Curve(
                        f"sum by (queue) ({_own('quorate_queue_gpus_fair_share' + _OF_BOTH)})", "{{queue}} fair share"
                    ),
                ),
            ),
            Panel(
                "Borrowed",
                "GPUs held beyond the guarantee: these can be taken back.",
                "short",
                (Curve(f"sum by (queue) ({_own('quorate_queue_gpus_borrowed' + _OF_BOTH)})", "{{queue}}"),),
            ),
            Panel(
                "Waiting",
                "GPUs asked for by jobs that wait.",
                "short",
                (Curve(f"sum by (queue) ({_own('quorate_queue_gpus_waiting' + _OF_BOTH)})", "{{queue}}"),),
            ),
        ),
    ),
    Row(
        "Jobs",
        (
            Panel(
                "Queue time, median and 90 %",
                "From submission to first start, by priority class.",
                "s",
                (
                    Curve(_quantile(0.5, "quorate_job_queue_seconds", "priority_class"), "{{priority_class}} median"),
                    Curve(_quantile(0.9, "quorate_job_queue_seconds", "priority_class"), "{{priority_class}} 90 %"),
                ),
            ),
            Panel(
                "Why jobs wait",
                "By the most telling reason.",
                "short",
                (Curve(f"sum by (reason) ({_own('quorate_jobs_pending' + _OF_QUEUE)})", "{{reason}}"),),
                stacked=True,
            ),
            Panel(
                "Starts",
                "Attempts that were given what they need.",
                "ops",
                (Curve(f"sum by (queue) (rate(quorate_job_starts_total{_OF_QUEUE}[{_RANGE}]))", "{{queue}}"),),
            ),
            Panel(
                "Evictions",
                "Jobs that were asked to leave or to shrink, within an hour, by why.",
                "short",
                (Curve(f"sum by (means) (increase(quorate_evictions_total{_OF_QUEUE}[1h])) > 0", "{{means}}"),),
            ),
            Panel(
                "Failures",
                "Within an hour, by kind.",
                "short",
                (Curve("sum by (kind) (increase(quorate_job_failures_total[1h])) > 0", "{{kind}}"),),
            ),
            Panel(
                "Work that was lost",
                "GPU-hours within an hour, since the last checkpoint of attempts that ended so.",
                "short",
                (Curve("sum by (cause) (increase(quorate_gpu_lost_seconds_total[1h])) / 3600", "{{cause}}"),),
            ),
            Panel(
                "Forecasts",
                "By how much 90 % of jobs started no earlier or later than they were told first.",
                "s",
                (Curve(_quantile(0.9, "quorate_forecast_error_seconds", "direction"), "{{direction}}"),),
            ),
        ),
    ),
    Row(
        "Control plane",
        (
            Panel(
                "Phases of a round, 90 %",
                "Sighting to acting keeps jobs waiting; what follows does not.",
                "s",
                (Curve(_quantile(0.9, "quorate_round_phase_seconds", "phase"), "{{phase}}"),),
            ),
            Panel(
                "Rounds",
                "By what decided them. Faults are to be reported.",
                "ops",
                (
                    Curve(f"sum by (stage) (rate(quorate_rounds_total[{_RANGE}]))", "{{stage}}"),
                    Curve(f"sum(rate(quorate_round_faults_total[{_RANGE}]))", "faults"),
                ),
            ),
            Panel(
                "Jobs that wait or leave and need not",
                "0 of each kind, or to be reported.",
                "short",
                (Curve(f"sum by (kind) ({_own('quorate_round_shortfalls')})", "{{kind}}"),),
            ),
            Panel(
                "Store, 99 %",
                "How long transactions take.",
                "s",
                (Curve(_quantile(0.99, "quorate_store_transaction_seconds", "kind"), "{{kind}}"),),
            ),
            Panel(
                "Backend lag",
                "For how long the quietest agent, or the API server about a kind of object, has said nothing.",
                "s",
                (
                    Curve("max(quorate_agents_silent_seconds)", "agents"),
                    Curve("max by (kind) (quorate_followed_silent_seconds)", "{{kind}}"),
                ),
            ),
            Panel(
                "Room on disks",
                "Output of tasks is dropped where it becomes little.",
                "bytes",
                (Curve("quorate_disk_free_bytes", "{{instance}} {{folder}}"),),
            ),
        ),
    ),
)
