"""`quorate doctor`: whether a machine has what the parts of Quorate need, and what to do where it has not."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

import click

from reconciler.cli.exits import ExitCode
from reconciler.cli.output import output_option, print_json
from reconciler.cli.params import Address, AddressParam
from reconciler.cli.tables import print_table
from solver.model.document import API_VERSION, Document

Feature = Literal["run", "processes", "containers", "gpus", "kubernetes", "postgresql"]
Finding = Literal["ok", "limited", "missing"]

_FILES_LEAST: Final = 4_096
"""A connection of each agent and viewer, and one of each task that is started; below it hundreds of nodes are too many."""
_DISK_LEAST_BYTES: Final = 1 << 30
_UNSYNCHRONISED: Final = 0x40
"""STA_UNSYNC of adjtimex(2)."""


class Check(Document, frozen=True, kw_only=True):
    """One look. `found`: what there is; `lacks`: what does not work without it, and `fix` what to do, both "" where it is ok."""

    name: str
    feature: Feature
    finding: Finding
    found: str
    lacks: str = ""
    fix: str = ""


class CheckList(Document, frozen=True, omit_defaults=False):
    """What `-o json` prints."""

    items: tuple[Check, ...]
    api_version: Literal["quorate.dev/v1"] = API_VERSION


class _Machine(NamedTuple):
    """Where a control plane would keep its state, and listen."""

    state: Path
    listen: Address

    @property
    def writes_to(self) -> Path:
        """The state folder, or the folder that it would be made in."""
        known = self.state.absolute()
        return next(folder for folder in (known, *known.parents) if folder.exists())


@click.command(short_help="Say what this machine lacks, and for what.")
@click.option(
    "--for",
    "wanted",
    multiple=True,
    type=click.Choice(get_args(Feature)),
    help="What must work here, else the exit code is 1; repeatable. Default: run.",
)
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="The state folder of `quorate run`, there already or not.  [default: $QUORATE_STATE, else quorate in the user's state "
    "folder]",
)
@click.option(
    "--listen", type=AddressParam(), default="127.0.0.1:7717", show_default=True, help="Where it would listen."
)
@output_option("text", "json")
@click.pass_context
def doctor(ctx: click.Context, wanted: tuple[Feature, ...], state: Path | None, listen: Address, output: str) -> None:
    """Look at this machine: Git, SSH, disk, clock, port, files, control groups, podman, GPUs, and the extras that are there.

    What is missing is told with what does not work without it.
    """
    from reconciler.access.token_file import default_state_folder

    checks = tuple(look(state or default_state_folder(), listen))
    if output == "json":
        print_json(CheckList(checks))
    else:
        _print(checks)
    lacking = any(check.finding == "missing" and check.feature in (wanted or ("run",)) for check in checks)
    ctx.exit(ExitCode.ERROR if lacking else ExitCode.OK)


def look(state: Path, listen: Address) -> Iterator[Check]:
    """Every check, in the order of features."""
    machine = _Machine(state, listen)
    yield _extra("run", "fastapi", "no control plane can run here, only commands that ask one", "server")
    for each in (_git, _signatures, _ssh, _folder, _disk, _port, _files, _clock, _cgroups, _podman, _gpus, _mps):
        yield each(machine)
    yield _extra("kubernetes", "kubernetes", "no Kubernetes cluster can be scheduled from here")
    yield _extra("postgresql", "psycopg", "no store can be in PostgreSQL, so that only one control plane can run")


def _print(checks: tuple[Check, ...]) -> None:
    print_table(("CHECK", "FOR", "FINDING", "FOUND"), ((c.name, c.feature, c.finding, c.found) for c in checks))
    for check in checks:
        if check.finding != "ok":
            click.echo(f"\n{check.name}: {check.lacks}")
            if check.fix:
                click.echo(f"  {check.fix}")


def _git(_: _Machine) -> Check:
    from reconciler.gitops.source.errors import GitSourceError
    from reconciler.gitops.source.hardened_git import git_in

    try:
        with git_in(Path.cwd()) as git:
            version = ".".join(map(str, git.version_info))
    except GitSourceError as error:
        return _missing("git", "run", str(error), "no policy can be followed", error.fix)
    return Check(name="git", feature="run", finding="ok", found=version)


def _signatures(_: _Machine) -> Check:
    lacking = [name for name in ("ssh-keygen", "gpg") if shutil.which(name) is None]
    if not lacking:
        return Check(name="signatures", feature="run", finding="ok", found="ssh-keygen, gpg")
    kinds = " or ".join({"ssh-keygen": "SSH", "gpg": "GPG"}[name] for name in lacking)
    lacks = f"commits signed with {kinds} keys are refused where policy asks for signatures"
    fix = f"Install {' and '.join(lacking)}."
    found = f"there is no {' and no '.join(lacking)}"
    return Check(name="signatures", feature="run", finding="limited", found=found, lacks=lacks, fix=fix)


def _ssh(_: _Machine) -> Check:
    if where := shutil.which("ssh"):
        return Check(name="ssh", feature="run", finding="ok", found=where)
    lacks = "no policy can be followed over ssh"
    fix = "Install an SSH client, or follow the repository over https."
    return Check(name="ssh", feature="run", finding="limited", found="there is no ssh", lacks=lacks, fix=fix)


def _folder(machine: _Machine) -> Check:
    if os.access(machine.writes_to, os.W_OK | os.X_OK):
        found = f"{machine.state}" if machine.state.exists() else f"{machine.state}, to be made"
        return Check(name="state folder", feature="run", finding="ok", found=found)
    fix = "Give it to the user that runs Quorate, or name another with --state."
    return _missing("state folder", "run", f"{machine.writes_to} can't be written", "nothing can be kept", fix)


def _disk(machine: _Machine) -> Check:
    room = shutil.disk_usage(machine.writes_to).free
    found = f"{room / (1 << 30):.1f} GiB free"
    if room >= _DISK_LEAST_BYTES:
        return Check(name="disk", feature="run", finding="ok", found=found)
    lacks = "output of tasks is dropped while a disk is nearly full"
    return Check(name="disk", feature="run", finding="limited", found=found, lacks=lacks, fix="Free some space.")


def _port(machine: _Machine) -> Check:
    host, port = machine.listen
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return Check(name="port", feature="run", finding="ok", found=f"{port} is free")
    except OSError as error:
        found = f"{port} is taken" if error.errno == errno.EADDRINUSE else f"{host}: {error.strerror}"
        lacks = "a control plane can't listen there; one may be running already (`quorate status`)"
        fix = "Listen elsewhere, as in `quorate run --listen 127.0.0.1:7718`."
        return Check(name="port", feature="run", finding="limited", found=found, lacks=lacks, fix=fix)


def _files(_: _Machine) -> Check:
    most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = "no limit" if most == resource.RLIM_INFINITY else f"at most {most} open"
    if most == resource.RLIM_INFINITY or most >= _FILES_LEAST:
        return Check(name="open files", feature="run", finding="ok", found=found)
    lacks = "hundreds of agents and viewers don't find a connection"
    room = "" if hard == resource.RLIM_INFINITY else f", of {hard} at most here"
    fix = f"`ulimit -n {_FILES_LEAST}`, or LimitNOFILE= of a systemd unit{room}."
    return Check(name="open files", feature="run", finding="limited", found=found, lacks=lacks, fix=fix)


def _clock(_: _Machine) -> Check:
    """adjtimex(2) of the kernel, which whatever keeps the clock in step tells of its success."""

    class Timex(ctypes.Structure):
        _fields_ = (
            ("modes", ctypes.c_int),
            *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror_us", "esterror_us")),
            ("status", ctypes.c_int),
            ("rest", ctypes.c_byte * 256),
        )

    told = Timex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(told)) < 0:
        found = f"not known: {os.strerror(ctypes.get_errno())}"
    elif told.status & _UNSYNCHRONISED:
        found = "not kept in step"
    else:
        found = f"kept in step, to {told.maxerror_us / 1_000_000:.3g} s"
        return Check(name="clock", feature="run", finding="ok", found=found)
    lacks = "times of machines may differ: leases of agents and certificates depend on them"
    fix = "Run chrony or systemd-timesyncd."
    return Check(name="clock", feature="run", finding="limited", found=found, lacks=lacks, fix=fix)


def _cgroups(_: _Machine) -> Check:
    from reconciler.node.local.machine import limits_of_this_machine

    cgroups, unlimited = limits_of_this_machine()
    where = cgroups if isinstance(cgroups, str) else str(cgroups.folder)
    if not unlimited:
        return Check(name="control groups", feature="processes", finding="ok", found=where)
    fix = "Run it by systemd with Delegate=yes and DelegateSubgroup=, or as root, where cgroup v2 is mounted."
    return Check(name="control groups", feature="processes", finding="limited", found=where, lacks=unlimited, fix=fix)


def _podman(_: _Machine) -> Check:
    from reconciler.node.local.podman import find_podman
    from reconciler.node.local.runtimes import NoContainersError

    try:
        podman = find_podman()
    except NoContainersError as error:
        return _missing(
            "podman", "containers", str(error), "jobs with an image can't start here", "Install podman 4.3 or newer."
        )
    found = f"{podman.version}, {'rootless' if podman.rootless else 'of root'}"
    if podman.limits:
        return Check(name="podman", feature="containers", finding="ok", found=found)
    lacks = "containers are limited in neither CPU nor memory"
    fix = "Mount cgroup v2, or run it as root."
    return Check(name="podman", feature="containers", finding="limited", found=found, lacks=lacks, fix=fix)


def _gpus(_: _Machine) -> Check:
    from reconciler.node.local_driver import driver_here
    from reconciler.node.nvml.driver import DriverError
    from reconciler.node.nvml.inventory import read_inventory

    try:
        driver = driver_here()
        found = None if isinstance(driver, str) else read_inventory(driver)
    except DriverError as error:
        driver, found = str(error), None
    if found is None or not found.gpus:
        why = driver if isinstance(driver, str) else "the driver shows none"
        fix = "Install NVIDIA's driver and `quorate[agent]`; without GPUs `quorate run` simulates those that Git declares."
        return _missing("GPUs", "gpus", why, "no GPU is given out, measured or partitioned here", fix)
    return Check(name="GPUs", feature="gpus", finding="ok", found=f"{len(found.gpus)}, driver {found.driver}")


def _mps(_: _Machine) -> Check:
    from reconciler.node.local.mps import PROGRAM

    where = shutil.which(PROGRAM)
    if where:
        return Check(name="MPS", feature="gpus", finding="ok", found=where)
    lacks = "tasks that share a GPU take turns, whatever a SharingPolicy says"
    fix = f"Install {PROGRAM}, which comes with NVIDIA's driver."
    return Check(name="MPS", feature="gpus", finding="limited", found=f"there is no {PROGRAM}", lacks=lacks, fix=fix)


def _extra(feature: Feature, module: str, lacks: str, extra: str = "") -> Check:
    package = f"quorate[{extra or feature}]"
    if find_spec(module) is not None:
        return Check(name=package, feature=feature, finding="ok", found="installed")
    return _missing(package, feature, "not installed", lacks, f"Install `{package}`.")


def _missing(name: str, feature: Feature, found: str, lacks: str, fix: str) -> Check:
    return Check(name=name, feature=feature, finding="missing", found=found, lacks=lacks, fix=fix)
