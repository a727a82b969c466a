"""Tables of what people decide, and of who is told."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Table

from reconciler.store.columns import String, Text
from reconciler.store.schema import Number, metadata

# What people did by hand. A row stays when it is over: it is the record of who did what and why.
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
    Column("until", BigInteger),  # absent: until somebody resumes
    Column("ended_at", BigInteger, index=True),  # absent while nobody has ended it, also when its time is over
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
