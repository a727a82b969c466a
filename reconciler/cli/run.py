"""`quorate run`: the control plane."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.accounts_options import accounts_of, accounts_options
from reconciler.cli.agents_options import agents_options, agents_settings, refuse_beside_agents
from reconciler.cli.connections_options import connection_settings, connections_options
from reconciler.cli.console_options import console_options, console_settings
from reconciler.cli.dcgm_options import dcgm_options, dcgm_settings
from reconciler.cli.kubernetes_options import kubernetes_options, kubernetes_settings
from reconciler.cli.metrics_options import metrics_options, metrics_settings
from reconciler.cli.output import CommandFailedError
from reconciler.cli.params import Address, AddressParam, DurationParam, cluster_option, keep_logs_option
from reconciler.cli.slurm_options import slurm_options, slurm_settings
from reconciler.cli.store_options import audit_options, audit_settings, store_options
from solver.model.quantities import Duration

if TYPE_CHECKING:
    from reconciler.node.local_driver import WhoseGpus
    from reconciler.server.settings import Settings, StoreSettings


@click.command(short_help="Run the control plane.")
@click.option(
    "--policies-repo",
    required=True,
    metavar="URL|PATH",
    help="The Git repository that holds the policy: https, ssh, or the path of a local one.",
)
@click.option("--branch", default="main", show_default=True, help="The branch to follow.")
@cluster_option
@click.option("--poll", type=DurationParam(), default="5s", show_default=True, help="How often to look for commits.")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for what must not be lost: jobs, history, logs, the token.  [default: $QUORATE_STATE, else quorate in the "
    "user's state folder]",
)
@click.option(
    "--listen",
    type=AddressParam(),
    default="127.0.0.1:7717",
    envvar="QUORATE_LISTEN",
    show_default=True,
    help="Where the API listens, else QUORATE_LISTEN; port 0: any.",
)
@console_options
@metrics_options
@connections_options
@click.option(
    "--tokens",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The token file of users, as `quorate token create` writes it (mode 0600). What they may do is in the AccessPolicy.",
)
@click.option(
    "--secrets",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder of secrets that jobs may name, DIR/QUEUE/NAME or DIR/QUEUE/NAME/KEY (mode 0700).",
)
@accounts_options
@click.option(
    "--gpus",
    type=click.Choice(["declared", "nvml"]),
    default="declared",
    show_default=True,
    help="Whose word counts for the GPUs of this machine: that of Git alone, or of NVIDIA's driver too (needs `quorate[agent]`).",
)
@keep_logs_option
@click.option(
    "--allowed-signers",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Follow only commits signed by a key of this file, or of the AccessPolicy in force. OpenSSH's format of allowed signers; "
    "armored OpenPGP keys may stand in it too.",
)
@click.option(
    "--webhook-secret",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Hear webhooks of GitHub, GitLab or Gitea that are signed with the secret in this file (mode 0600).",
)
@store_options
@audit_options
@click.option(
    "--tasks",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder of tasks, where control planes of this machine share one. With --store.  [default: tasks in --state]",
)
@agents_options
@kubernetes_options
@slurm_options
@dcgm_options
@click.option(
    "--round-worker-from",
    type=click.IntRange(min=0),
    metavar="GPUS",
    help="Decide rounds in a process of their own where the cluster has so many GPUs or more.  [default: 8000]",
)
@click.option(
    "--take-clock",
    is_flag=True,
    help="Begin with the time of the clock, where it was set right: dates hold at once. Limits and waits are off by as much, once.",
)
@click.option("--insecure-no-auth", is_flag=True, help="Let every user of this machine use the API. Loopback only.")
def run(**options: Any) -> None:
    """Follow a policy repository, decide rounds, and run jobs: as processes of this machine or of many, or as pods of Kubernetes.

    Stop it with Ctrl-C or SIGTERM: what runs goes on, and the next start on the same state folder finds it.
    """
    from reconciler.server.logs import configure_logs, logger
    from reconciler.server.process import serve

    settings = _settings(**options)
    _refuse_unlike(settings)
    configure_logs()
    try:
        serve(settings, logger())
    except _failures() as failure:
        fix = getattr(failure, "fix", "")
        raise CommandFailedError(str(failure), fix=fix) from failure


def _settings(
    *,
    policies_repo: str,
    branch: str,
    cluster: str | None,
    poll: Duration,
    state: Path | None,
    listen: Address,
    tokens: Path | None,
    secrets: Path | None,
    run_as_submitter: bool,
    accounts: tuple[str, ...],
    gpus: WhoseGpus,
    keep_logs: Duration | None,
    allowed_signers: Path | None,
    webhook_secret: Path | None,
    insecure_no_auth: bool,
    **others: Any,
) -> Settings:
    """Raises click.UsageError."""
    from reconciler.access.token_file import default_state_folder
    from reconciler.server.folder import StateFolder
    from reconciler.server.settings import Settings

    store, connections, dcgm = _store_settings(others), connection_settings(others), dcgm_settings(others)
    seen = _grouped_settings(others)
    return Settings(
        policies=policies_repo,
        branch=branch,
        cluster=cluster,
        folder=StateFolder((state or default_state_folder()).absolute()),
        host=listen.host,
        port=listen.port,
        poll=poll,
        authenticate=not insecure_no_auth,
        tokens=tokens,
        secrets=secrets,
        accounts=accounts_of(run_as_submitter, accounts),
        gpus=gpus,
        keep_logs=keep_logs,
        allowed_signers=allowed_signers,
        webhook_secret=webhook_secret,
        agents=agents_settings(others),
        kubernetes=kubernetes_settings(**others, dcgm=dcgm),
        store=store,
        connections=connections,
        **seen,
    )


def _grouped_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Of options that are read elsewhere, or go on as they are, taken out of them. Raises click.UsageError."""
    found = {**metrics_settings(options), **console_settings(options), **audit_settings(options)}
    rounds = {name: options.pop(name) for name in ("round_worker_from", "take_clock")}
    return {**found, **rounds, "slurm": slurm_settings(options)}


def _store_settings(options: dict[str, Any]) -> StoreSettings | None:
    """Taken out of the options. Raises click.UsageError."""
    from reconciler.server.settings import StoreSettings

    url, password_file, tasks = (options.pop(name) for name in ("store", "store_password_file", "tasks"))
    if url is None and tasks is not None:
        raise click.UsageError("--tasks is shared by control planes of one --store. Add that, or leave it out.")
    return None if url is None else StoreSettings(url, password_file, tasks.absolute() if tasks else None)


def _refuse_unlike(settings: Settings) -> None:
    """Raises click.UsageError for options that mean nothing together."""
    if settings.slurm is not None:
        _refuse_beside_slurm(settings)
    if settings.agents is not None:
        refuse_beside_agents(
            {
                "--kubernetes": settings.kubernetes,
                "--run-as-submitter (which `quorate agent` has, too)": settings.accounts is not None,
                "--gpus nvml": settings.gpus == "nvml",
                "--keep-logs (which `quorate agent` has, too)": settings.keep_logs,
                "--tasks": settings.store.tasks if settings.store else None,
            }
        )
    if settings.gpus == "nvml" and settings.kubernetes is not None:
        raise click.UsageError("--gpus nvml is for the GPUs of this machine. Leave it out, or leave --kubernetes out.")
    if settings.keep_logs is not None and settings.kubernetes is not None:
        raise click.UsageError(
            "--keep-logs is for tasks of this machine; kubelets keep the logs of pods. Leave it out."
        )
    if settings.take_clock and settings.kubernetes is not None:
        raise click.UsageError(
            "With --kubernetes each start takes the clock of the API server. Leave --take-clock out."
        )
    if settings.store is not None and settings.kubernetes is not None:
        raise click.UsageError(
            "--store holds which job has which device; with --kubernetes the API server does. Leave one of them out."
        )
    if settings.tasks != settings.folder.tasks and settings.accounts is not None:
        raise click.UsageError("--run-as-submitter knows only the tasks of its own --state. Leave --tasks out.")


def _refuse_beside_slurm(settings: Settings) -> None:
    """Nothing is run beside Slurm, and its folder is nobody else's."""
    given = {
        "--agents-listen": settings.agents,
        "--store": settings.store,
        "--gpus nvml": settings.gpus == "nvml",
        "--keep-logs": settings.keep_logs,
        "--run-as-submitter": settings.accounts is not None,
        "--secrets": settings.secrets,
        "--take-clock": settings.take_clock,
    }
    for option, value in given.items():
        if value:
            raise click.UsageError(
                f"{option} is for jobs that Quorate runs, and beside Slurm it runs none. Leave it out."
            )


def _failures() -> tuple[type[Exception], ...]:
    """What a person can do something about. Anything else is a fault of the program, and shows where it happened."""
    from reconciler.access.audit_keys import AuditKeyError
    from reconciler.access.client_secrets import ClientSecretError
    from reconciler.access.token_file import TokenFileError
    from reconciler.api.guard import InsecureBindingError
    from reconciler.api.server import AddressError
    from reconciler.backends.baremetal.agent_listener import AgentListenerError
    from reconciler.backends.baremetal.key_files import KeyFileError
    from reconciler.connections.limits import ConnectionLimitsError
    from reconciler.gitops.source.errors import GitSourceError
    from reconciler.node.local import StateFolderError
    from reconciler.node.local.secrets import UnsafeSecretsError
    from reconciler.node.nvml.driver import DriverUnusableError
    from reconciler.protocols.store_errors import StoreUnusableError
    from reconciler.server.folder import FolderUnusableError
    from reconciler.server.kubernetes_cluster import KubernetesFailedError
    from reconciler.server.process import ServerEndedError
    from reconciler.server.terms import IdentityError
    from reconciler.server.traces import TracesUnavailableError
    from reconciler.server.webhook_secret import WebhookSecretError

    return (
        AddressError,
        ClientSecretError,
        ConnectionLimitsError,
        AgentListenerError,
        AuditKeyError,
        DriverUnusableError,
        FolderUnusableError,
        GitSourceError,
        IdentityError,
        InsecureBindingError,
        KeyFileError,
        KubernetesFailedError,
        ServerEndedError,
        StateFolderError,
        StoreUnusableError,
        TokenFileError,
        TracesUnavailableError,
        UnsafeSecretsError,
        WebhookSecretError,
    )
