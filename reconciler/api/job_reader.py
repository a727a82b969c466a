"""What is read of jobs: page by page, as far as the caller may see them, and of one why it is where it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple, get_args

from fastapi import Query

from reconciler.access.rights import Rights
from reconciler.api.cursors import bad_cursor, cursor_of, number_of, place_of
from reconciler.api.payloads import EventList, JobList, JobView, Why
from reconciler.api.problems import NotReadyError
from reconciler.api.redaction import bare_event, first_line, readable_view
from reconciler.api.services import Services
from reconciler.api.timeline_routes import instant_of
from reconciler.api.views import JobViews, help_of, job_view, words_of
from reconciler.model.job_record import TERMINAL, WAITING, JobRecord, JobState
from reconciler.model.job_runs import called
from reconciler.protocols.job_source import JobOrder, JobQuery, UnknownJobError
from solver.model.cluster import Node
from solver.model.quantities import Instant
from solver.model.workload import JobName, JobSpec, QueueName
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree

LOOKED_AT_MAX = 10_000
"""Jobs that one request looks at in search of those it is asked for; a page may be short, and `next` goes on."""

COUNTED_MAX = 10_000
"""Jobs that are counted of those that match."""

PAGE_MAX: Final = 1_000
"""A page may be asked for that is ten times as large. It would take seconds, and what else is asked for meanwhile with it."""

_CHUNK = 500


class JobCount(NamedTuple):
    """How many jobs match. Where it is not exact it is the most that there can be, or, with `is_more`, fewer than there are."""

    jobs: int
    is_exact: bool
    is_more: bool = False
    is_known: bool = True


@dataclass(frozen=True)
class JobFilter:
    """Parameters of the query, as a FastAPI dependency; what is left out lets everything through."""

    queue: Annotated[str, Query(description="Of this queue and those below it.", max_length=63)] = ""
    user: Annotated[str, Query(description="Submitted by this user.", max_length=200)] = ""
    state: Annotated[tuple[JobState, ...], Query(description="In one of these states.")] = ()
    prefix: Annotated[str, Query(description="With a name that begins so.", max_length=253)] = ""
    text: Annotated[str, Query(description="With this in the name, in letters of either case.", max_length=253)] = ""
    priority_class: Annotated[str, Query(alias="class", description="Of this priority class.", max_length=253)] = ""
    gpu_type: Annotated[
        str, Query(alias="gpuType", description="That would take GPUs of this type.", max_length=253)
    ] = ""
    live: Annotated[bool, Query(description="That have not ended.")] = False
    sort: Annotated[
        JobOrder,
        Query(description="newest; waiting: those alone that hold nothing, the first submitted first; biggest."),
    ] = "newest"
    since: Annotated[
        str, Query(alias="from", description="That had not ended at this time, or so long ago.", max_length=40)
    ] = ""
    to: Annotated[
        str, Query(description="That had been submitted before this time, or so long ago.", max_length=40)
    ] = ""
    called: Annotated[str, Query(description="Of this name, each run that was called so.", max_length=253)] = ""
    group: Annotated[str, Query(description="Of this array or pipeline, by its id.", max_length=253)] = ""

    def since_at(self, now: Instant) -> Instant | None:
        """Raises RequestRefusedError."""
        return instant_of("from", self.since, now) if self.since else None

    def to_at(self, now: Instant) -> Instant | None:
        """Raises RequestRefusedError."""
        return instant_of("to", self.to, now) if self.to else None

    def query(self, policy: Callable[[], tuple[str, Policy]], now: Instant) -> JobQuery:
        """What a source need look at. The policy is read where a queue is named. Raises NoPolicyError, RequestRefusedError."""
        states = frozenset(self.state)
        live_only = self.live or self.sort == "waiting"
        return JobQuery(
            queues=frozenset(_with_those_below(QueueName(self.queue), policy()[1])) if self.queue else None,
            user=self.user,
            prefix=self.prefix,
            ended=frozenset() if live_only else states & TERMINAL if states else None,
            live=not states or bool(states - TERMINAL),
            holds=False if states and states <= WAITING else True if states and states <= _HOLDING else None,
            text=self.text,
            called=self.called,
            group=self.group,
            classes=_classes(self.priority_class, policy()[1]) if self.priority_class else None,
            gpu_type=self.gpu_type,
            since=self.since_at(now),
            to=self.to_at(now),
            order=self.sort,
        )

    @property
    def is_told_by_query(self) -> bool:
        """Whether a job that the query lets through is always one that is asked for: a state is derived, and tested."""
        return not set(self.state) - TERMINAL

    def test(self, policy: Callable[[], tuple[str, Policy]], now: Instant) -> Callable[[JobView], bool]:
        """Says of a job whether it is asked for. The policy is read where a queue is named. Raises NoPolicyError,
        RequestRefusedError.
        """
        since, to = self.since_at(now), self.to_at(now)
        tree = QueueTree.of(policy()[1]) if self.queue else None
        states, text = frozenset(self.state), self.text.lower()
        live_only = self.live or self.sort == "waiting"
        classes = _classes(self.priority_class, policy()[1]) if self.priority_class else None

        def wanted(view: JobView) -> bool:
            within = view.spec.queue
            return (
                (not states or view.state in states)
                and (not self.user or view.user == self.user)
                and view.name.startswith(self.prefix)
                and (tree is None or self.queue == within or self.queue in tree.path(within))
                and text in view.name.lower()
                and (not self.called or called(view.name) == self.called)
                and (not self.group or self.group in (view.pipeline, view.array.id if view.array else ""))
                and (classes is None or view.spec.priority_class in classes)
                and (not self.gpu_type or _takes(view.spec, self.gpu_type))
                and not (live_only and view.state in TERMINAL)
                and (self.sort != "waiting" or view.state in WAITING)
                and (since is None or view.outcome is None or view.outcome.at > since)
                and (to is None or view.submitted_at < to)
            )

        return wanted


_HOLDING: Final = frozenset(get_args(JobState)) - TERMINAL - WAITING


def _classes(name: str, policy: Policy) -> frozenset[str]:
    """What jobs of a class say: its name, and nothing where it is the default."""
    return frozenset({name, ""}) if name == policy.scheduling.default_priority_class else frozenset({name})


def _takes(spec: JobSpec, gpu_type: str) -> bool:
    groups = (group.shape for group in spec.task_groups if group.shape.cost)
    return any(not shape.gpu_types or gpu_type in shape.gpu_types for shape in groups)


def _with_those_below(queue: QueueName, policy: Policy) -> Iterator[QueueName]:
    tree = QueueTree.of(policy)
    yield queue
    yield from (each.name for each in policy.queues if queue in tree.path(each.name))


class JobReader:
    """Of one server. Any thread may ask."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def page(self, asked: JobFilter, rights: Rights, limit: int, cursor: str) -> JobList:
        """Jobs that may be seen, in the order asked for. Raises RequestRefusedError for a bad cursor, NoPolicyError."""
        limit = min(limit, PAGE_MAX)
        wanted, query = asked.test(self._services.policy, self._services.clock.now()), self._query(asked, rights)
        items: list[JobView] = []
        last, more = "", False
        for looked_at, (record, view) in enumerate(self._walk(JobName(place_of(cursor)), limit + 1, query)):
            if len(items) == limit or looked_at == LOOKED_AT_MAX:
                more = True
                break
            last = record.name
            if rights.may("see-job", record.spec.queue, record.user) and wanted(seen := view(record)):
                items.append(readable_view(seen, rights))
        return JobList(items=tuple(items), next=cursor_of(last) if more else "")

    def count(self, asked: JobFilter, rights: Rights) -> JobCount:
        """How many that are, as far as the source can tell without reading them. Raises NoPolicyError."""
        found = self._services.jobs.count(self._query(asked, rights), COUNTED_MAX + 1)
        if found is None:
            return JobCount(COUNTED_MAX, is_exact=False, is_known=False)
        return JobCount(
            min(found, COUNTED_MAX), asked.is_told_by_query and found <= COUNTED_MAX, is_more=found > COUNTED_MAX
        )

    def _query(self, asked: JobFilter, rights: Rights) -> JobQuery:
        seen_in, seen_by = rights.where("see-job")
        return asked.query(self._services.policy, self._services.clock.now())._replace(seen_in=seen_in, seen_by=seen_by)

    def events(self, record: JobRecord, rights: Rights, limit: int, cursor: str = "") -> EventList:
        """What happened to a job: the newest events, oldest first. Raises RequestRefusedError for a bad cursor."""
        # One more than wanted says whether there is another page.
        kept = self._services.history.events_before(record.name, number_of(cursor), limit + 1)
        following = cursor_of(kept[1].number) if len(kept) > limit else ""
        events = tuple(each.event for each in kept[-limit:])
        if not _readable(record, rights):
            events = tuple(map(bare_event, events))
        return EventList(items=events, next=following)

    def why(self, record: JobRecord, rights: Rights) -> Why:
        """Why a job is where it is."""
        view = job_view(self._services, record)
        verdict = self._services.verdict(record.name) if view.outcome is None else None
        words = words_of(view, verdict, self._nodes(), self._services.sighted().words.get(record.name, ()))
        if not _readable(record, rights):
            words = tuple(map(first_line, words))
        return Why(name=record.name, state=view.state, verdict=verdict, words=words, would_help=help_of(view, verdict))

    def _walk(
        self, after: JobName, likely: int, query: JobQuery
    ) -> Iterator[tuple[JobRecord, Callable[[JobRecord], JobView]]]:
        """Jobs from the newest, or from behind `after`, as long as they are asked for, each with what views it.

        `likely`: so many will do, unless others are among them than are looked for.
        Raises RequestRefusedError for a bad cursor.
        """
        last, views, size = after or None, JobViews(self._services), min(likely, _CHUNK)
        while True:
            try:
                chunk = self._services.jobs.jobs(size, last, query)
            except UnknownJobError as error:
                raise bad_cursor() from error
            view = views.of(chunk)
            yield from ((record, view) for record in chunk)
            if len(chunk) < size:
                return
            last, size = chunk[-1].name, _CHUNK

    def _nodes(self) -> tuple[Node, ...]:
        try:
            return self._services.snapshot().nodes
        except NotReadyError:
            # What a job holds is known from the ledger before the first round has looked at the nodes.
            return ()


def _readable(record: JobRecord, rights: Rights) -> bool:
    return rights.may("read-job", record.spec.queue, record.user)
