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

from reconciler.store.schema import Number, String, Text, metadata, since

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
    Column(
        "written", BigInteger, nullable=False, server_default="0", info=since(14)
    ),  # transactions, but those of leases
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
    # The spec's; absent, or 0: the release before took it in.
    Column("queue", String, info=since(14)),
    Column("priority_class", String, info=since(14)),
    Column("gpu_types", String, info=since(14)),  # of its tasks, with a blank before and after each; *: any will do
    Column("gpus", BigInteger, nullable=False, server_default="0", info=since(14)),  # thousandths, of the whole gang
    # What `train#2` is called, `train`, and `sweep#2-7`, `sweep-7`; absent of the first of a name, which is called as its id.
    Column("called", String, index=True, info=since(14)),
    Index("live_jobs_by_size", "ended_at", "gpus", "number"),
    Index("jobs_by_size", "gpus", "number"),
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
    Column("called", String, index=True, info=since(15)),  # as with jobs, in one space with theirs
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
    Column("gpu_types", Text, info=since(14)),  # of the task groups; absent: the release before took it in
)

# What attempts hold and held, until 2^62 where they still do, written with the claims; see placements.py.
placements = Table(
    "placements",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=False),
    Column("job", String, nullable=False, index=True),
    Column("attempt", Integer, nullable=False),
    Column("queue", String, nullable=False),
    Column("user", String, nullable=False),
    Column("gpu_type", String, nullable=False),  # empty: no GPUs, or the release before took the claim in
    Column("gpus", BigInteger, nullable=False),  # thousandths, of all nodes
    Column("since", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False, index=True),
    Column("ended", String, nullable=False, server_default=""),
    Column("beneficiary", String, nullable=False, server_default=""),
    Column("pod", String, info=since(15, rows=True)),  # its uid, where jobs are pods: then this is what one pod held
    Column("saved_at", BigInteger, info=since(15)),  # until when the gang of a pod said that its work was saved
    info=since(14),
)
Index(
    "placements_pod",
    placements.c.pod,
    sqlite_where=placements.c.pod.is_not(None),
    postgresql_where=placements.c.pod.is_not(None),
)

placement_nodes = Table(
    "placement_nodes",
    metadata,
    Column("placement", Number, ForeignKey("placements.number", ondelete="CASCADE"), primary_key=True),
    Column("node", String, primary_key=True),
    Column("until", BigInteger, nullable=False),  # the placement's, to find those of a node in a window
    Column("gpus", BigInteger, nullable=False),  # thousandths
    Column("tasks", LargeBinary, nullable=False),  # as placements.py packs them
    Index("placement_nodes_node", "node", "until"),
    info=since(14),
    sqlite_with_rowid=False,
)

# Which GPUs a node had, and what those were that no job held, until 2^62 where it still is so; see capacity.py.
capacity = Table(
    "capacity",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=False),
    Column("node", String, nullable=False),
    Column("pool", String, nullable=False),
    Column("gpu_type", String, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False, index=True),
    Column("devices", LargeBinary, nullable=False),  # as capacity.py packs them
    Index("capacity_node", "node", "until"),
    info=since(14),
)

# When a leader was there to see that change.
capacity_watches = Table(
    "capacity_watches",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=True),
    Column("since", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False, index=True),
    info=since(14),
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
    Column("record", LargeBinary, nullable=False),  # as round_records.py packs it
    # The round of whose record this one says only what is new, 0 of one that says all. Before: all, in another packing.
    Column("keyframe", Number, info=since(14, rows=True)),
    # The complete round on which jobs were started alone; absent of a complete one. Such a record is packed by itself.
    Column("base", Number, info=since(14, rows=True)),
    Index("rounds_base", "base", "number"),
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

# The audit chain of events, and that of rounds: what a record was when it was written, signed. See reconciler/model/audit.py.
audit_links = Table(
    "audit_links",
    metadata,
    Column("chain", String, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("time", BigInteger, nullable=False),
    Column("kind", String, nullable=False),
    Column("record", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("previous", LargeBinary, nullable=False),
    Column("key", String, nullable=False),
    Column("mac", LargeBinary, nullable=False),
    Column("note", Text, nullable=False),  # a LinkNote; empty: it is of a record
    info=since(14),
    sqlite_with_rowid=False,
)

# What people did by hand. A row stays when it is over: it is the record of what was done, by which user and why.
interventions = Table(
    "interventions",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=True),
    Column("kind", String, nullable=False),
    Column("subject_kind", String, nullable=False),
    Column("subject", String, nullable=False),
    Column("author", String, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
    Column("ended_at", BigInteger, index=True),  # absent while it is in force
    Column("ended_as", String, nullable=False),  # why it is over; empty while it is not
    Column("ended_by", String, nullable=False),
)

# Revisions that a person accepted although a requirement held them. A row stays when it is used: it is the record.
approvals = Table(
    "approvals",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=True),
    Column("commit", String, nullable=False, index=True),
    Column("reason", String, nullable=False),  # the requirement's
    Column("in_place_of", String, nullable=False),
    Column("author", String, nullable=False),
    Column("why", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("used_at", BigInteger),  # absent until the commit is in force
)

# Plans that a person accepted, for when a revision that says the same is merged.
accepted_plans = Table(
    "accepted_plans",
    metadata,
    Column("meaning", String, primary_key=True),
    Column("envelope", Text, nullable=False),
    Column("author", String, nullable=False),
    Column("why", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
)

# When Git was not followed because a person said so.
suspensions = Table(
    "suspensions",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=True),
    Column("author", String, nullable=False),
    Column("why", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("until", BigInteger),  # absent: until a user resumes
    Column("ended_at", BigInteger, index=True),  # absent while it was not ended, also when its time is over
    Column("ended_by", String, nullable=False),
)

# How far each webhook of an AlertPolicy is.
webhooks = Table(
    "webhooks",
    metadata,
    Column("webhook", String, primary_key=True),
    Column("cursor", BigInteger, nullable=False),  # number of the last event that was dealt with
    Column("target", String, nullable=False),
    Column("delivered", BigInteger, nullable=False),
    Column("given_up", BigInteger, nullable=False),
    Column("answered_at", BigInteger),
    Column("failing_since", BigInteger),
    Column("tries", BigInteger, nullable=False),
    Column("not_before", BigInteger, nullable=False),
    Column("problem", Text, nullable=False),
    Column("stopped", Boolean, nullable=False),
)

# A row goes when nothing speaks against the node any more.
node_health = Table(
    "node_health",
    metadata,
    Column("node", String, primary_key=True),
    Column("record", Text, nullable=False),  # a NodeHealth
    Column("forgiven_at", BigInteger),  # when a person let it take work again; absent: none has
    info=since(14),
)

agents = Table(
    "agents",
    metadata,
    Column("node", String, primary_key=True),
    Column("generation", BigInteger, nullable=False),  # certificates of older ones count no more
    Column("joined_at", BigInteger, nullable=False),
    Column("renewed_at", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),  # when the newest certificate ends
    Column("revoked_at", BigInteger),  # absent while its certificates count
    Column("revoked_by", String, nullable=False),
    info=since(14),
)

# Tokens that make a machine the agent of a node. The token itself is nowhere.
agent_invitations = Table(
    "agent_invitations",
    metadata,
    Column("node", String, primary_key=True),
    Column("token_hash", String, nullable=False, unique=True),
    Column("by", String, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
    Column("key", String, nullable=False),  # of the agent that used it; empty: none has
    info=since(14),
)

ended_gangs = Table(
    "ended_gangs",
    metadata,
    Column("job", String, primary_key=True),
    Column("submitted_at", BigInteger, primary_key=True, index=True),
    Column("queue", String, nullable=False),
    Column("priority_class", String, nullable=False),
    Column("gpus", BigInteger, nullable=False),  # thousandths, of the whole gang
    Column("ran", BigInteger, nullable=False),  # milliseconds, in all its attempts
    info=since(14),
)

# Gangs of pods, as jobs are: what they were, and when they came and went; see pod_placements.py.
past_gangs = Table(
    "past_gangs",
    metadata,
    Column("name", String, primary_key=True),
    Column("called", String, nullable=False, index=True),  # as its pods call it
    Column("queue", String, nullable=False),
    Column("priority_class", String, nullable=False),
    Column("gpus", BigInteger, nullable=False),  # thousandths, of the whole gang
    Column("gpu_types", String, nullable=False),  # as those of jobs
    Column("spec", Text, nullable=False),
    Column("submitted_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger, index=True),  # absent while it is there
    Column("ended_as", String, nullable=False, server_default=""),
    Column("controllers", Text, nullable=False),  # uids, with blanks between
    info=since(15),
)

gang_evictions = Table(
    "gang_evictions",
    metadata,
    Column("job", String, primary_key=True),
    Column("at", BigInteger, primary_key=True),
    info=since(14),
)

# Browsers that are signed in. The secret itself is nowhere but in them.
sessions = Table(
    "sessions",
    metadata,
    Column("secret_hash", String, primary_key=True),
    Column("until", BigInteger, nullable=False, index=True),
    Column("session", Text, nullable=False),  # a Session
    info=since(14),
)

# Use of GPUs: of a node, an hour of minutes, a day of hours or 32 days of days, as use_blocks.py packs them.
gpu_use = Table(
    "gpu_use",
    metadata,
    Column("step", String, primary_key=True),
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    Column("node", String, primary_key=True),
    Column("block", LargeBinary, nullable=False),
    info=since(14),
)
