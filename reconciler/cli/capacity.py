"""`quorate capacity`: what is short, what waits for what, what more nodes would change, and how many meet a target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec import UNSET, UnsetType

from reconciler.cli.backtest_inputs import Arrivals, ClusterSource, arrivals_from_server, arrivals_of, candidates_of
from reconciler.cli.connection import server_option
from reconciler.cli.exits import ExitCode
from reconciler.cli.inputs import unreadable
from reconciler.cli.optimiser import program_beside
from reconciler.cli.output import CommandFailedError, output_option, print_json, printable
from reconciler.cli.params import DurationParam, InstantParam, cluster_option
from reconciler.cli.status_line import busy
from reconciler.cli.tables import print_table
from solver.model.cluster import Node
from solver.model.document import digest
from solver.model.quantities import Duration, Instant
from solver.plan.reason import count
from solver.simulation.trace import ReplayedRound

if TYPE_CHECKING:
    from reconciler.analysis.backtest.backtest import Backtest, PolicyCandidate
    from reconciler.analysis.backtest.summary import ReplayOutcome
    from reconciler.analysis.capacity.addition import NodeAddition
    from reconciler.analysis.capacity.attempts import AttemptFile
    from reconciler.analysis.capacity.report import AdditionSearch, CapacityCase, CapacityReport, TriedAddition
    from reconciler.analysis.capacity.search import SmallestNumber
    from reconciler.analysis.capacity.target import JudgedWait, WaitTarget

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
Read = TypeVar("Read")


@click.command(short_help="Show what is short, and what more nodes would change.")
@click.option("--history", type=_FILE, help="The jobs: what `quorate history export` has written.")
@server_option
@click.option("--trace", type=_FILE, help="The jobs: a trace as CSV, with the columns of the Philly trace.")
@click.option("--from", "start", type=InstantParam(), help="First instant looked at; by default that of the first job.")
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="How long it is; by default until the end.")
@click.option(
    "--policies",
    multiple=True,
    type=_FOLDER,
    metavar="DIR",
    help="A policy repository, or its folder of policies; by default this one. Further ones are compared with the first.",
)
@click.option("--repo", default=".", show_default=True, type=_FOLDER, help="The Git repository of the revisions.")
@click.option(
    "--revision", "revisions", multiple=True, metavar="REV", help="A revision of the policy; repeatable, as --policies."
)
@cluster_option
@click.option("--inventory", type=_FOLDER, help="The repository with the cluster, in place of each policy's own.")
@click.option("--snapshot", type=_FILE, help="The snapshot with the nodes, in place of each policy's own inventory.")
@click.option(
    "--add",
    "additions",
    multiple=True,
    metavar="NODES",
    help="What if there were more nodes: 16xH100-node:2, or POOL:2; repeatable, all at once.",
)
@click.option(
    "--target",
    metavar="TARGET",
    help="Find the fewest more nodes that meet it: 'p90 wait of standard < 1h'. Which nodes, says an --add without a number.",
)
@click.option(
    "--add-at-most", default=64, show_default=True, type=click.IntRange(1, 10_000), help="Nodes that --target may add."
)
@click.option(
    "--keep",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Keep what --target has tried, and go on from there where the file is there.",
)
@click.option(
    "--cadence", default="30s", show_default=True, type=DurationParam(), help="At most one round per this span."
)
@click.option("--greedy", is_flag=True, help="Without the integer program: faster.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a report with plots too.")
@output_option("text", "json")
def capacity(output: str, html: Path | None, **asked: Any) -> None:
    """Replay the past and say what was asked for, what was short, which jobs waited for it, and what would change.

    What is said of the past is said of a replay of the recorded jobs under the policy, round by round, on its cluster: every hour
    that a job waited counts for the first reason that it was told.
    """
    found = _found(_Question(**asked))
    if html:
        _write(html, found)
    if output == "json":
        print_json(found)
    else:
        _print(found)


@dataclass(frozen=True)
class _Question:
    """The options."""

    history: Path | None
    server: str | None
    trace: Path | None
    start: Instant | None
    days: float | None
    policies: tuple[Path, ...]
    repo: Path
    revisions: tuple[str, ...]
    cluster: str | None
    inventory: Path | None
    snapshot: Path | None
    additions: tuple[str, ...]
    target: str | None
    add_at_most: int
    keep: Path | None
    cadence: Duration
    greedy: bool

    def candidates(self, nodes: tuple[Node, ...] | None) -> list[PolicyCandidate]:
        """The policies; `nodes`: those of a server, in place of each one's own."""
        source = ClusterSource(self.inventory, self.snapshot, nodes)
        if self.policies or self.revisions:
            return candidates_of(self.policies, self.repo, self.revisions, source, self.cluster)
        (here,) = candidates_of((Path(),), self.repo, (), source, self.cluster)
        return [replace(here, name="as it is")]

    def past(self) -> tuple[Arrivals, tuple[Node, ...] | None]:
        """The jobs, and the nodes where a server says them."""
        if self.history or self.trace:
            if self.server:
                raise click.UsageError("--server excludes --history and --trace: the jobs come from one of them")
            return arrivals_of(self.trace, self.history, self.start, self.days), None
        return arrivals_from_server(self.server, self.start, self.days)


def _found(asked: _Question) -> CapacityReport:
    from reconciler.analysis.backtest.backtest import Backtest
    from reconciler.analysis.capacity.addition import assumptions
    from reconciler.analysis.capacity.report import CapacityReport

    if asked.keep and asked.target is None:
        raise click.UsageError("--keep is for --target: nothing else is searched for")
    past, nodes = asked.past()
    candidates = asked.candidates(nodes)
    additions = [_readable("--add", written, _addition(candidates[0], written)) for written in asked.additions]
    target = None
    if asked.target is not None:
        target = _readable("--target", asked.target, _target(candidates[0], past, asked.target))
    counted = [(addition, addition.nodes) for addition in additions if addition.nodes is not None]
    _refuse_unclear(additions, target)
    if counted:
        candidates.append(_added(candidates[0], counted))
    notes = (*past.notes, *assumptions(additions))
    for note in notes:
        click.echo(f"note: {printable(note)}", err=True)
    with nullcontext() if asked.greedy else program_beside() as optimiser, busy("replaying") as tell:
        backtest = Backtest(past.jobs, past.start, past.end, asked.cadence, optimiser, forecasts=False)
        following = _Progress(tell, past)
        replayed = [_case(backtest, candidate, following) for candidate in candidates]
        cases = tuple(case for case, _ in replayed)
        search: AdditionSearch | UnsetType = UNSET
        if target:
            of = additions[0] if additions else _shortest(cases[0], candidates[0].nodes)
            now = target.judge(replayed[0][1])
            search = _Search(asked, backtest, candidates[0], target, following).found(of, now)
    return CapacityReport(past.source, past.start, past.end, asked.cadence, notes, cases, search)


def _case(backtest: Backtest, candidate: PolicyCandidate, following: _Progress) -> tuple[CapacityCase, ReplayOutcome]:
    from reconciler.analysis.capacity.account import case_of

    case, outcome = case_of(backtest, candidate, following.follow)
    for note in case.notes:
        click.echo(f"note: {printable(candidate.name)}: {printable(note)}", err=True)
    return case, outcome


def _shortest(case: CapacityCase, nodes: Sequence[Node]) -> NodeAddition | None:
    """Nodes of the GPU type that was waited for most; None: most was waited for something else."""
    from reconciler.analysis.capacity.addition import nodes_of_type
    from reconciler.analysis.capacity.bottlenecks import ADDED_BY_NODES

    first = next((line.bottleneck for line in case.bottlenecks if line.bottleneck.kind != "round"), None)
    if first is None or first.kind not in ADDED_BY_NODES or not first.gpu_types:
        return None
    return nodes_of_type(first.gpu_types[0], nodes)


def _addition(base: PolicyCandidate, written: str) -> Callable[[], NodeAddition]:
    from reconciler.analysis.capacity.addition import read_addition

    return lambda: read_addition(written, base.nodes)


def _target(base: PolicyCandidate, past: Arrivals, written: str) -> Callable[[], WaitTarget]:
    from reconciler.analysis.capacity.target import read_target

    return lambda: read_target(written, past.jobs, base.policy)


def _readable(option: str, written: str, read: Callable[[], Read]) -> Read:
    from reconciler.analysis.capacity.target import PhraseError

    try:
        return read()
    except PhraseError as error:
        place = f"{option} {written!r}, character {error.column}"
        raise CommandFailedError(str(error), place=place, fix=error.fix, exit_code=ExitCode.USAGE) from error


def _refuse_unclear(additions: Sequence[NodeAddition], target: WaitTarget | None) -> None:
    without = [addition for addition in additions if addition.nodes is None]
    if without and target is None:
        raise click.UsageError("an --add says no number of nodes: end it with :2, or name a --target")
    if target and len(additions) > 1:
        raise click.UsageError("a --target adds nodes of one kind: name one --add, or none")


def _added(base: PolicyCandidate, additions: Sequence[tuple[NodeAddition, int]]) -> PolicyCandidate:
    from reconciler.analysis.capacity.addition import told

    nodes = base.nodes
    for addition, number in additions:
        nodes = addition.to(nodes, number)
    return replace(base, name=told(additions), nodes=nodes)


@dataclass
class _Progress:
    """Says on a terminal how far the replays are. `done`: how many are over."""

    tell: Callable[[str], None]
    past: Arrivals
    done: int = 0

    def follow(self, name: str, rounds: Iterator[ReplayedRound]) -> Iterator[ReplayedRound]:
        """Hand on the rounds of one."""
        length = self.past.end - self.past.start
        for decided in rounds:
            percent = max(0, 100 * (decided.snapshot.time - self.past.start) // length)
            waiting = len(decided.snapshot.pending)
            self.tell(f"replay {self.done + 1} ({name}): {percent} %, {count(waiting, 'job')} waiting")
            yield decided
        self.done += 1


@dataclass(frozen=True)
class _Search:
    """How many more nodes meet a target."""

    asked: _Question
    backtest: Backtest
    base: PolicyCandidate
    target: WaitTarget
    following: _Progress

    def found(self, addition: NodeAddition | None, now: JudgedWait) -> AdditionSearch:
        """Look for it; `now`: the wait as it is. Raises CommandFailedError where it is interrupted, with what is known by then."""
        from reconciler.analysis.capacity.attempts import AttemptFile, tried_of
        from reconciler.analysis.capacity.report import AdditionSearch
        from reconciler.analysis.capacity.search import SmallestNumber

        tried = {0: now}
        if addition is None:
            note = "unknown: what is waited for most is not of one GPU type, so --add has to say which nodes to add"
            met = now.is_met
            of = tried_of(tried)
            return AdditionSearch(self.target, str(self.target), "", of, 0 if met else None, "" if met else note)
        kept = AttemptFile(self.asked.keep, self._question(addition)) if self.asked.keep else None
        tried |= {number: found for number, found in (_read(kept) if kept else {}).items() if number}
        search = SmallestNumber(tried, self.asked.add_at_most)
        try:
            while (number := search.next) is not None:
                tried[number] = self._wait(addition, number)
                if kept:
                    _keep(kept, tried_of(tried))
        except KeyboardInterrupt as error:
            raise self._interrupted(search) from error
        return AdditionSearch(self.target, str(self.target), addition.kind, tried_of(tried), search.met)

    def _wait(self, addition: NodeAddition, number: int) -> JudgedWait:
        """The wait with so many more nodes."""
        candidate = _added(self.base, [(addition, number)])
        outcome, _ = self.backtest.replayed(candidate, self.following.follow)
        return self.target.judge(outcome)

    def _question(self, addition: NodeAddition) -> str:
        """The digest of all that decides the answers."""
        of = (addition.like, addition.gpus, addition.sizes)
        tried = (self.backtest.jobs, self.backtest.start, self.backtest.end, self.base.nodes, self.base.policy)
        return digest((tried, of, self.target, self.asked.cadence, self.asked.greedy))

    def _interrupted(self, search: SmallestNumber) -> CommandFailedError:
        missed, met = search.missed, search.met
        known = [f"{missed} more do not meet the target"] * (missed is not None) + [f"{met} do"] * (met is not None)
        kept = self.asked.keep
        fix = f"The same command goes on from {kept}." if kept else "With --keep FILE it can be gone on with."
        told = f"interrupted: {', '.join(known) or 'nothing is known yet'}"
        return CommandFailedError(told, fix=fix, exit_code=ExitCode.INTERRUPTED)


def _read(kept: AttemptFile) -> dict[int, JudgedWait]:
    from reconciler.analysis.capacity.attempts import ForeignAttemptsError

    try:
        return kept.read()
    except ForeignAttemptsError as error:
        fix = "Name another file, or delete this one."
        raise CommandFailedError(str(error), place=f"--keep {kept.path}", fix=fix) from error
    except OSError as error:
        raise unreadable(error, kept.path) from error


def _keep(kept: AttemptFile, tried: tuple[TriedAddition, ...]) -> None:
    try:
        kept.write(tried)
    except OSError as error:
        raise unreadable(error, kept.path) from error


def _write(path: Path, found: CapacityReport) -> None:
    from reconciler.analysis.capacity.page import capacity_page

    try:
        path.write_text(capacity_page(found), encoding="utf-8")
    except OSError as error:
        raise unreadable(error, path) from error


def _print(found: CapacityReport) -> None:
    from reconciler.analysis.capacity.rows import attempts, comparison, findings, headline, tables, verdict

    for said in (headline(found), *findings(found.cases[0])):
        _say(said)
    shown = [listed for listed in tables(found.cases[0]) if listed.rows]
    if len(found.cases) > 1:
        shown.append(comparison(found.cases))
    if found.search and not found.search.note:
        shown.append(attempts(found.search))
    for listed in shown:
        click.echo(f"\n{listed.title}")
        print_table(listed.headings, listed.rows, right=listed.right)
    if found.search:
        click.echo()
        _say(verdict(found.search))


def _say(sentence: str) -> None:
    """In lines as wide as a terminal is at least."""
    click.echo(fill(printable(sentence), 80, break_long_words=False, break_on_hyphens=False))
