"""The options of `quorate run` for a cluster whose jobs are pods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from reconciler.server.settings import KubernetesSettings

OPTIONS = (
    click.option(
        "--kubernetes", is_flag=True, help="Jobs are the pods of a Kubernetes cluster that name schedulerName: quorate."
    ),
    click.option(
        "--observe", is_flag=True, help="Decide rounds and do nothing: say what would have been. With --kubernetes."
    ),
    click.option(
        "--observed-scheduler",
        "observed_schedulers",
        multiple=True,
        metavar="NAME",
        help="With --observe: pods that name this scheduler and ask for GPUs are jobs too; repeatable.  [default: "
        "default-scheduler, and the usual names of KAI, scheduler-plugins, Volcano and YuniKorn]",
    ),
    click.option(
        "--observed-queue", default="", metavar="QUEUE", help="With --observe: the queue of jobs that name none."
    ),
    click.option(
        "--mirror-policy",
        is_flag=True,
        help="Show the policy in force as ConfigMaps of the namespace, for reading. With --kubernetes.",
    ),
    click.option(
        "--kubeconfig",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="How to reach the API server.  [default: what a pod is given, else $KUBECONFIG, else that of the home folder]",
    ),
    click.option(
        "--namespace", default="quorate-system", show_default=True, help="The namespace of Quorate's own objects."
    ),
    click.option(
        "--lease", default="quorate", show_default=True, help="The Lease that leaders take, in that namespace."
    ),
    click.option(
        "--identity", metavar="NAME", help="Who this process is in the Lease.  [default: the host's name, and a number]"
    ),
    click.option(
        "--mig-configs",
        default="gpu-operator/default-mig-parted-config",
        show_default=True,
        metavar="NAMESPACE/NAME",
        help="The ConfigMap of the GPU operator's MIG manager, whose configs nodes are labelled with.",
    ),
    click.option(
        "--qps",
        type=click.FloatRange(min=1),
        default=500.0,
        show_default=True,
        help="Requests to the API server in a second, at most.",
    ),
    click.option(
        "--burst", type=click.IntRange(min=1), default=1000, show_default=True, help="Requests at once after a rest."
    ),
)


def kubernetes_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All of them, in this order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def kubernetes_settings(
    *,
    kubernetes: bool,
    observe: bool,
    observed_schedulers: tuple[str, ...],
    observed_queue: str,
    mirror_policy: bool,
    kubeconfig: Path | None,
    namespace: str,
    lease: str,
    identity: str | None,
    mig_configs: str,
    qps: float,
    burst: int,
) -> KubernetesSettings | None:
    """None: jobs run on this machine. Raises click.UsageError."""
    from reconciler.kubernetes.objects.pod_ownership import INCUMBENTS, PodOwnership
    from reconciler.server.settings import KubernetesSettings, identity_of_this_process

    if (observed_schedulers or observed_queue) and not observe:
        raise click.UsageError(
            "--observed-scheduler and --observed-queue are for --observe. Add it, or leave them out."
        )
    if not kubernetes:
        if observe or mirror_policy or kubeconfig:
            raise click.UsageError(
                "--observe, --mirror-policy and --kubeconfig are for --kubernetes. Add it, or leave them out."
            )
        return None
    if observe and mirror_policy:
        raise click.UsageError("--mirror-policy writes, and --observe writes nothing. Leave one of them out.")
    of_mig, slash, configs = mig_configs.partition("/")
    if not (of_mig and slash and configs) or "/" in configs:
        raise click.BadParameter("Write NAMESPACE/NAME.", param_hint="--mig-configs")
    return KubernetesSettings(
        kubeconfig,
        namespace,
        lease,
        identity or identity_of_this_process(),
        qps,
        burst,
        (of_mig, configs),
        observed=PodOwnership(frozenset(observed_schedulers or INCUMBENTS), observed_queue) if observe else None,
        mirror_policy=mirror_policy,
    )
