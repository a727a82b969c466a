"""Judges what really ran, from the simulated cluster's own log, and how the jobs ended. Knows nothing of the loop."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import pairwise

from hack.crash.doors import TaskName, Told
from reconciler.backends.simulated.behaviour import by_command
from reconciler.backends.simulated.cluster import Interval, Telling
from reconciler.lifecycle.jobs.states import FOLLOWERS
from reconciler.model.cluster_clock import SLEW
from reconciler.model.job_record import JobRecord
from reconciler.protocols.history import History
from reconciler.protocols.ledger import Ledger
from solver.model.cluster import DeviceId
from solver.model.mig import mig_model
from solver.model.quantities import Instant
from solver.model.workload import JobName

_MODEL = mig_model("H100-80GB")
"""What the GPUs of the workload are."""

OUTCOMES = ("succeeded", "failed", "cancelled")

_FOLLOWERS: dict[str, Container[str]] = dict(FOLLOWERS.items())


def double_owners(ran: Iterable[Interval]) -> Iterable[str]:
    """GPUs, or slices of one, on which two tasks ran at once."""
    by_device: defaultdict[str, list[Interval]] = defaultdict(list)
    for interval in ran:
        for part in (part for device in interval.devices for part in _parts(device)):
            by_device[part].append(interval)
    for device, intervals in sorted(by_device.items()):
        intervals.sort(key=lambda interval: interval.begin)
        for before, after in pairwise(intervals):
            if before.end is None or before.end > after.begin:
                yield f"double-bound: {device} by {_name(before)} until {before.end} and {_name(after)} from {after.begin}"


def _parts(device: DeviceId) -> Iterator[str]:
    """The memory slices of an instance (`GPU/PROFILE@START`), or all those of a GPU."""
    gpu, _, place = device.rpartition("/")
    profile, _, start = place.partition("@")
    if not start:
        gpu, start, size = device, "0", _MODEL.memory_slices
    else:
        size = next(known.memory_slices for known in _MODEL.profiles if known.name == profile)
    yield from (f"{gpu} slice {number}" for number in range(int(start), int(start) + size))


def doubled_starts(ran: Iterable[Interval]) -> Iterable[str]:
    """Tasks of one attempt that began twice."""
    for name, count in Counter(_name(interval) for interval in ran).items():
        if count > 1:
            yield f"doubled: {name} began {count} times"


def runs_after_success(ran: Iterable[Interval], records: Iterable[JobRecord]) -> Iterable[str]:
    """Jobs of one size of which something began after an attempt had ended well as a whole."""
    rigid = {record.name: record.spec.tasks for record in records if _least(record) == record.spec.tasks}
    attempts: defaultdict[JobName, defaultdict[int, list[Interval]]] = defaultdict(lambda: defaultdict(list))
    for interval in ran:
        attempts[interval.job][interval.attempt].append(interval)
    for job, by_attempt in attempts.items():
        for attempt, intervals in by_attempt.items():
            well = [interval.end for interval in intervals if interval.state == "succeeded" and interval.end]
            later = [ran for other, rans in by_attempt.items() if other != attempt for ran in rans]
            if len(well) == rigid.get(job) and any(ran.begin >= max(well) for ran in later):
                yield f"run again: {job} after attempt {attempt} had succeeded"


def lost_jobs(accepted: set[JobName], records: Iterable[JobRecord]) -> Iterable[str]:
    """Accepted jobs that never came to an end."""
    ended = {record.name for record in records if record.outcome is not None}
    for job in sorted(accepted - ended):
        yield f"lost: {job} has no outcome"


def false_outcomes(
    ran: Iterable[Interval], records: Iterable[JobRecord], cancelled: set[JobName], told_to_leave: set[TaskName]
) -> Iterable[str]:
    """Outcomes that what really ran does not bear out. How tasks end that were ever told to leave says nothing of a success."""
    states: defaultdict[JobName, defaultdict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    staying: defaultdict[JobName, defaultdict[int, dict[tuple[str, int], str]]] = defaultdict(lambda: defaultdict(dict))
    spans: defaultdict[JobName, defaultdict[int, list[Interval]]] = defaultdict(lambda: defaultdict(list))
    # Of a task that began again the last life counts.
    for interval in sorted(ran, key=lambda interval: interval.growth):
        states[interval.job][interval.attempt].append(interval.state)
        if (interval.job, interval.attempt, interval.group, interval.index) not in told_to_leave:
            staying[interval.job][interval.attempt][interval.group, interval.index] = interval.state
        spans[interval.job][interval.attempt].append(interval)
    for record in records:
        if record.outcome is None:
            continue
        attempts = states[record.name].values()
        well = any(
            len(found) >= _least(record) and set(staying[record.name][number].values()) <= {"succeeded"}
            for number, found in states[record.name].items()
        )
        broken = any(state in ("failed", "lost") for found in attempts for state in found)
        too_long = any(_reached_limit(record, attempt) for attempt in spans[record.name].values())
        stood_still = any(_stood_still(record, attempt, record.outcome.at) for attempt in spans[record.name].values())
        borne_out = {
            "succeeded": well,
            "failed": broken or too_long or stood_still,
            "cancelled": record.name in cancelled,
        }[record.outcome.state]
        if not borne_out:
            yield f"false outcome: {record.name} is {record.outcome.state}, its tasks {list(attempts)}"


def broken(ran: Iterable[Interval]) -> set[tuple[JobName, int]]:
    """Attempts of which something failed, or was lost."""
    return {(interval.job, interval.attempt) for interval in ran if interval.state in ("failed", "lost")}


def too_many_retries(ran: Iterable[Interval], records: Iterable[JobRecord], most: int) -> Iterable[str]:
    """Jobs that were tried again more often than they may, and failures on record of which nothing was to be seen."""
    ran = tuple(ran)
    broken_attempts = broken(ran)
    for record in records:
        counted = sum(failure.counts for failure in record.failures)
        if counted > (most if record.spec.retry_policy else 0):
            yield f"retried too often: {record.name} {counted} times"
        for failure in record.failures:
            if failure.kind == "stuck":
                attempt = [task for task in ran if (task.job, task.attempt) == (record.name, failure.attempt)]
                if not _stood_still(record, attempt, failure.at):
                    yield f"false failure: {record.name} was not stuck in attempt {failure.attempt}"
            elif failure.kind != "time-limit" and (record.name, failure.attempt) not in broken_attempts:
                yield f"false failure: nothing of {record.name} failed in attempt {failure.attempt}"


def cut_short(ran: Iterable[Interval], records: Iterable[JobRecord], history: History, spare: int) -> Iterable[str]:
    """Attempts that were told to stop for their time limit before they had run for so long, whatever any clock said.

    `spare`: by how many milliseconds more a limit may be missed than the time of the cluster may be corrected by, as nodes say when
    tasks began.
    """
    for record, attempt, tasks in _limited(ran, records, history):
        limit = record.spec.time_limit or 0
        # What was lost with its machine no limit has ended, though it may be asked for before that is known.
        ends = [task.end for task in tasks if task.end is not None and task.state != "lost"]
        if ends and max(ends) < max(task.begin for task in tasks) + limit * (1 - SLEW) - spare:
            yield f"cut short: {record.name} in attempt {attempt} at {max(ends)}, of {limit} ms: {tasks}"


def outlasting(ran: Iterable[Interval], records: Iterable[JobRecord], spare: int) -> Iterable[str]:
    """Attempts that ran for longer than their time limit and so many milliseconds."""
    limits = {record.name: record.spec.time_limit for record in records}
    for (job, attempt), tasks in _by_attempt(ran).items():
        limit, ends = limits.get(job), [task.end for task in tasks if task.end is not None]
        began = max(task.begin for task in tasks)
        if limit is not None and ends and max(ends) > began + limit * (1 + SLEW) + spare:
            yield f"outlasting: {job} in attempt {attempt} ran from {began} to {max(ends)}, with a limit of {limit} ms"


def _limited(
    ran: Iterable[Interval], records: Iterable[JobRecord], history: History
) -> Iterator[tuple[JobRecord, int, list[Interval]]]:
    attempts = _by_attempt(ran)
    for record in records:
        if record.spec.time_limit is None:
            continue
        for event in history.events(record.name, 10_000):
            tasks = attempts.get((record.name, event.attempt))
            if event.kind == "asked-to-stop" and "time limit" in event.cause and tasks:
                yield record, event.attempt, tasks


def _by_attempt(ran: Iterable[Interval]) -> Mapping[tuple[JobName, int], list[Interval]]:
    """What began with an attempt."""
    found: defaultdict[tuple[JobName, int], list[Interval]] = defaultdict(list)
    for task in ran:
        if task.growth == 0:
            found[task.job, task.attempt].append(task)
    return found


def _reached_limit(record: JobRecord, attempt: list[Interval]) -> bool:
    """Some task ran until the limit, which counts from when all of them ran."""
    limit = record.spec.time_limit
    first = [interval.begin for interval in attempt if interval.growth == 0]
    if limit is None or len(first) < _least(record):
        return False
    reached_at = max(first) + limit
    return any(interval.end is not None and interval.end >= reached_at for interval in attempt)


def _stood_still(record: JobRecord, attempt: list[Interval], at: Instant) -> bool:
    """It had done no step for so long at that instant, as far as can be told from when its first task began."""
    hangs = by_command(record.spec, record.spec.task_groups[0].name).hangs
    if record.spec.stuck is None or hangs is None or not attempt:
        return False
    # It says how far it is once a second.
    return at >= min(task.begin for task in attempt) + hangs + record.spec.stuck.after - 1_000


def _least(record: JobRecord) -> int:
    return sum(group.least for group in record.spec.task_groups)


def mistold(heard: Iterable[Telling], ran: Iterable[Interval], sent: Container[Told]) -> Iterable[str]:
    """Tasks that were told something twice, or after what is newer, or what was for another attempt, or when they did not run."""
    spans = {(task.job, task.attempt, task.group, task.index, task.growth): task for task in ran}
    newest: dict[tuple[JobName, int, str, int, int], int] = {}
    for told in heard:
        life = told.job, told.attempt, told.group, told.index, told.growth
        if told.number <= newest.get(life, 0):
            yield f"mistold: {told} after {newest[life]}"
        newest[life] = told.number
        if (told.job, told.attempt, told.number) not in sent:
            yield f"mistold: {told}, which its attempt was never sent"
        task = spans.get(life)
        if task is None or told.at < task.begin or (task.end is not None and told.at > task.end):
            yield f"mistold: {told}, when it did not run"


def unlawful_lives(jobs: Iterable[JobName], history: History) -> Iterable[str]:
    """Jobs of which the record says that they went from one state to another that can't follow it."""
    for job in jobs:
        states = ["queued", *(event.state for event in history.events(job, 10_000) if event.state)]
        for before, after in pairwise(states):
            if before != after and after not in _FOLLOWERS[before]:
                yield f"unlawful: {job} went from {before} to {after}"


def mistold_acts(ran: Iterable[Interval], records: Iterable[JobRecord], history: History) -> Iterable[str]:
    """What was done and is not on record, or more than once: that gangs were bound, ran, gave back what they held, and ended."""
    attempts = _by_attempt(ran)
    for record in records:
        events = Counter(
            (event.kind, event.attempt)
            for event in history.events(record.name, 10_000)
            if event.kind in ("bound", "running", "released", *OUTCOMES)
        )
        wanted = {(kind, number) for job, number in attempts if job == record.name for kind in ("bound", "released")}
        if record.outcome is not None:
            wanted.add((record.outcome.state, record.outcome.attempt))
        for kind, number in sorted(wanted):
            if events[kind, number] != 1:
                yield f"mistold act: {record.name} was {kind} in attempt {number}, and {events[kind, number]} events say so"
        for (kind, number), times in events.items():
            if times > 1 or (kind in OUTCOMES and (kind, number) not in wanted):
                yield f"mistold act: {times} events say that {record.name} was {kind} in attempt {number}"


def leftovers(ran: Iterable[Interval], ledger: Ledger) -> Iterable[str]:
    """What still runs or is still held when every job has ended."""
    for interval in ran:
        if interval.end is None:
            yield f"left over: {_name(interval)} still runs on {interval.node}"
    for claim in ledger.claims():
        yield f"left over: {claim.job} still holds the devices of attempt {claim.attempt}"
    for name in (
        *(intent.id for intent in ledger.intents()),
        *(asked.id for asked in ledger.partitionings.in_flight()),
    ):
        yield f"left over: intent {name}"


def _name(interval: Interval) -> str:
    growth = f" of growth {interval.growth}" if interval.growth else ""
    return f"{interval.job}/{interval.attempt} {interval.group}/{interval.index}{growth}"
