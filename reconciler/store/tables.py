"""The tables. Times are milliseconds since 1970, documents are JSON in their one form."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
)

from reconciler.store.columns import String, Text
from reconciler.store.schema import Number, metadata, since

schema_version = Table(
    "schema_version",
    metadata,
    Column("version", Integer, primary_key=True),
    # READABLE_FROM of the program that brought the database to its version
    Column("readable_from", Integer, nullable=False, server_default="14", info=since(14)),
)

leadership = Table(
    "leadership",
    metadata,
    Column("id", Integer, primary_key=True),  # always 1: one leader
    Column("holder", String, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=True),  # order of arrival; clocks may jump
    Column("name", String, nullable=False, unique=True),
    Column("spec", Text, nullable=False),
    Column("user", String, nullable=False),
    Column("submitted_at", BigInteger, nullable=False),
    Column("idempotency_key", String, nullable=False),
    Column("cancel_requested_by", String, nullable=False, server_default=""),
    Column("suspended_by", String, nullable=False, server_default=""),
    Column("requeue_attempt", Integer, nullable=False, server_default="0"),
    Column("requeued_by", String, nullable=False, server_default=""),
    Column("ended_at", BigInteger, index=True),  # absent, as is the outcome, while the job is live
    Column("outcome", Text),
    Column("ended_as", String),  # the state of the outcome, to be counted
    Column("array", Text),  # an ArrayElement; absent: it is none
    Column("array_id", String, index=True),
    Column("pipeline", String, index=True),
)

# Arrays and pipelines. Their names are taken like those of jobs.
groups = Table(
    "groups",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=True),
    Column("name", String, nullable=False, unique=True),
    Column("kind", String, nullable=False),
    Column("pipeline", String),  # the pipeline that an array is part of
    Column("user", String, nullable=False),
    Column("submitted_at", BigInteger, nullable=False),
    Column("idempotency_key", String, nullable=False),
)

failures = Table(
    "failures",
    metadata,
    Column("job", String, ForeignKey("jobs.name"), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("outlived", Integer, primary_key=True),
    Column("failure", Text, nullable=False),
)

attempts = Table(
    "attempts",
    metadata,
    Column("job", String, ForeignKey("jobs.name"), primary_key=True),
    Column("last", Integer, nullable=False),
    Column("served_gpu_ms", BigInteger, nullable=False),  # what attempts before the last have run
)

claims = Table(
    "claims",
    metadata,
    Column("job", String, ForeignKey("jobs.name"), primary_key=True),
    Column("attempt", Integer, nullable=False),
    Column("tasks", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("running_since", BigInteger),
    Column("time_limit", BigInteger),  # milliseconds; absent: for ever
    Column("idle_limit", BigInteger),  # milliseconds; absent: it may be idle for ever
    Column("growth", Integer, nullable=False),  # how often it has grown
    Column("ran_gpu_ms", BigInteger, nullable=False),  # what it has run until its size changed last
    Column("sized_at", BigInteger),  # when that was; absent: never
    Column("marks", Text),  # a Marks; absent: nothing is remembered
)

# A whole GPU is held in 1000 parts, a share in fewer. That they never add up to more is checked in the transaction that
# writes them; writers are let in one at a time (the epoch's row is locked first).
holdings = Table(
    "holdings",
    metadata,
    Column("device", String, primary_key=True),
    Column("job", String, ForeignKey("claims.job", ondelete="CASCADE"), primary_key=True, index=True),
    Column("milli", Integer, nullable=False),
    Column("charged", Integer, nullable=False),  # thousandths of a GPU: of an instance, its part of the memory slices
    Column("gpu", String, nullable=False, index=True),  # the device itself, or the GPU that an instance is part of
)

# What each GPU was last asked to be partitioned into. It stays when that is done: the next attempt is one above.
partitions = Table(
    "partitions",
    metadata,
    Column("gpu", String, primary_key=True),
    Column("attempt", Integer, nullable=False),
    Column("in_flight", Boolean, nullable=False),
    Column("asked", Text, nullable=False),  # a Repartitioning
)

# Every change that was asked for counts against what a pool may be changed in an hour.
partition_changes = Table(
    "partition_changes",
    metadata,
    Column("gpu", String, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("at", BigInteger, nullable=False, index=True),
)

intents = Table(
    "intents",
    metadata,
    Column("id", String, primary_key=True),
    Column("job", String, ForeignKey("claims.job", ondelete="CASCADE"), nullable=False, index=True),
    Column("intent", Text, nullable=False),
)

# What evictions will free is promised to a waiting job, which holds nothing yet.
nominations = Table(
    "nominations",
    metadata,
    Column("job", String, ForeignKey("jobs.name"), primary_key=True),
    Column("intent", Text, nullable=False),
)

# For a waiting job, or by a Reservation document, which no table knows.
reservations = Table(
    "reservations",
    metadata,
    Column("holder", String, primary_key=True),
    Column("reservation", Text, nullable=False),
)

evictions = Table(
    "evictions",
    metadata,
    Column("job", String, ForeignKey("jobs.name"), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("at", BigInteger, nullable=False),
)

# Every checkpoint that was ever whole; a deleted one keeps its row, so that what a crash left of it is known for what it is.
checkpoints = Table(
    "checkpoints",
    metadata,
    Column("job", String, ForeignKey("jobs.name"), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("storage", String, nullable=False),
    Column("url", Text, nullable=False),
    Column("world_size", Integer, nullable=False),
    Column("size", BigInteger, nullable=False),  # bytes of all shards
    Column("digest", String, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("state", String, nullable=False, index=True),
    Column("findings", Text, nullable=False),
    Column("answers", Number, nullable=False),  # the request to save, numbered by its instant
    Column("resumed_by", Integer, nullable=False),  # 0: no attempt was begun from it
)

# Of what only the newest counts: past use, clocks; and the name of this state, which never changes.
kept = Table(
    "kept",
    metadata,
    Column("what", String, primary_key=True),
    Column("document", Text, nullable=False),
)

rounds = Table(
    "rounds",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=True),
    Column("time", BigInteger, nullable=False),
    Column("revision", String, nullable=False),
    Column("starts", Integer, nullable=False),
    Column("waits", Integer, nullable=False),
    Column("inadmissible", Integer, nullable=False),
    Column("stage", String, nullable=False),
    Column("duration_ms", Float, nullable=False),
    Column("verdicts", String, nullable=False),
    Column("record", LargeBinary, nullable=False),  # the whole RoundRecord as JSON, compressed with zlib
)

events = Table(
    "events",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=True),
    Column("time", BigInteger, nullable=False),
    Column("kind", String, nullable=False),
    Column("subject", String, nullable=False),
    Column("cause", Text, nullable=False),
    Column("actor", String, nullable=False),
    Column("state", String, nullable=False),  # what a job is from then on; empty: as before
    Column("attempt", Integer, nullable=False, server_default="0"),  # the job's; 0: none, or not said
    Column("purpose", String, nullable=False, server_default=""),  # why a gang is to stop
    Column("beneficiary", String, nullable=False, server_default=""),  # the job for which it is
    Index("events_subject", "subject", "number"),
)
