"""The options of `quorate run` for a cluster with pods as jobs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from reconciler.server.settings import DcgmSettings, KubernetesSettings


class KubeconfigFiles(click.ParamType[tuple[Path, ...]]):
    """Files, separated as in $KUBECONFIG; each has to be there, since it was asked for by name.

    What is the name of a file is that file: names of users, which kubeconfigs are called by, may have colons.
    """

    name = "files"
    _file = click.Path(exists=True, dir_okay=False, path_type=Path)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Path, ...]:
        """The files in their order."""
        if isinstance(value, tuple):
            return value
        whole = Path(str(value)).expanduser()
        several = [Path(name).expanduser() for name in str(value).split(os.pathsep) if name]
        named = [whole] if whole.is_file() else several
        if not named:
            self.fail(f"{value!r} names no file.", param, ctx)
        return tuple(self._file.convert(file, param, ctx) for file in named)


OPTIONS = (
    click.option(
        "--kubernetes", is_flag=True, help="Jobs are the pods of a Kubernetes cluster that name schedulerName: quorate."
    ),
    click.option(
        "--observe",
        is_flag=True,
        help="Decide rounds and do nothing: say what would have been. With --kubernetes or --slurm.",
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
        type=KubeconfigFiles(),
        default=(),
        metavar="FILE",
        help="How to reach the API server; several files, separated as in $KUBECONFIG, are merged.  [default: what a pod is given, "
        "else $KUBECONFIG, else that of the home folder]",
    ),
    click.option(
        "--context",
        metavar="NAME",
        help="The context of the kubeconfig.  [default: what a pod is given, else the current one]",
    ),
    click.option(
        "--namespace", default="quorate-system", show_default=True, help="The namespace of Quorate's own objects."
    ),
    click.option(
        "--lease", default="quorate", show_default=True, help="The Lease that leaders take, in that namespace."
    ),
    click.option(
        "--identity",
        metavar="NAME",
        help="The name of this process in the Lease.  [default: the host's name, and a number]",
    ),
    click.option(
        "--mig-configs",
        default="gpu-operator/default-mig-parted-config",
        show_default=True,
        metavar="NAMESPACE/NAME",
        help="The ConfigMap of the GPU operator's MIG manager: nodes are labelled with its configs.",
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
    kubeconfig: tuple[Path, ...],
    context: str | None,
    namespace: str,
    lease: str,
    identity: str | None,
    mig_configs: str,
    qps: float,
    burst: int,
    dcgm: DcgmSettings | None = None,
) -> KubernetesSettings | None:
    """None: jobs run on this machine. Raises click.UsageError."""
    from reconciler.kubernetes.objects.pod_ownership import INCUMBENTS, PodOwnership
    from reconciler.server.settings import KubernetesSettings, identity_of_this_process

    if (observed_schedulers or observed_queue) and not observe:
        raise click.UsageError(
            "--observed-scheduler and --observed-queue are for --observe. Add it, or leave them out."
        )
    if not kubernetes:
        _refuse_without(observe=observe, others=bool(mirror_policy or kubeconfig or context or dcgm))
        return None
    if observe and mirror_policy:
        raise click.UsageError("--mirror-policy writes, and --observe writes nothing. Leave one of them out.")
    of_mig, slash, configs = mig_configs.partition("/")
    if not (of_mig and slash and configs) or "/" in configs:
        raise click.BadParameter("Write NAMESPACE/NAME.", param_hint="--mig-configs")
    return KubernetesSettings(
        kubeconfig,
        context,
        namespace,
        lease,
        identity or identity_of_this_process(),
        qps,
        burst,
        (of_mig, configs),
        observed=PodOwnership(frozenset(observed_schedulers or INCUMBENTS), observed_queue) if observe else None,
        mirror_policy=mirror_policy,
        dcgm=dcgm,
    )


def _refuse_without(*, observe: bool, others: bool) -> None:
    """Raises click.UsageError for options that need --kubernetes."""
    if observe:
        raise click.UsageError("--observe is for --kubernetes or --slurm. Add one of them, or leave it out.")
    if others:
        raise click.UsageError(
            "--mirror-policy, --kubeconfig, --context, --dcgm-prometheus and --dcgm-exporters are for --kubernetes. "
            "Add it, or leave them out."
        )
