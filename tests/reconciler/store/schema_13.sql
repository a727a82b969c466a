-- The tables of schema version 13, as the releases that had it made them. Never edited: databases look like this.
CREATE TABLE schema_version (
  version INTEGER NOT NULL,
  PRIMARY KEY (version)
);
CREATE TABLE leadership (
  id INTEGER NOT NULL,
  holder VARCHAR NOT NULL,
  epoch BIGINT NOT NULL,
  until BIGINT NOT NULL,
  PRIMARY KEY (id)
);
CREATE TABLE jobs (
  number INTEGER NOT NULL,
  name VARCHAR NOT NULL,
  spec TEXT NOT NULL,
  user VARCHAR NOT NULL,
  submitted_at BIGINT NOT NULL,
  idempotency_key VARCHAR NOT NULL,
  cancel_requested_by VARCHAR DEFAULT '' NOT NULL,
  suspended_by VARCHAR DEFAULT '' NOT NULL,
  requeue_attempt INTEGER DEFAULT '0' NOT NULL,
  requeued_by VARCHAR DEFAULT '' NOT NULL,
  ended_at BIGINT,
  outcome TEXT,
  ended_as VARCHAR,
  array TEXT,
  array_id VARCHAR,
  pipeline VARCHAR,
  PRIMARY KEY (number),
  UNIQUE (name)
);
CREATE INDEX ix_jobs_ended_at ON jobs (ended_at);
CREATE INDEX ix_jobs_array_id ON jobs (array_id);
CREATE INDEX ix_jobs_pipeline ON jobs (pipeline);
CREATE TABLE groups (
  number INTEGER NOT NULL,
  name VARCHAR NOT NULL,
  kind VARCHAR NOT NULL,
  pipeline VARCHAR,
  user VARCHAR NOT NULL,
  submitted_at BIGINT NOT NULL,
  idempotency_key VARCHAR NOT NULL,
  PRIMARY KEY (number),
  UNIQUE (name)
);
CREATE TABLE partitions (
  gpu VARCHAR NOT NULL,
  attempt INTEGER NOT NULL,
  in_flight BOOLEAN NOT NULL,
  asked TEXT NOT NULL,
  PRIMARY KEY (gpu)
);
CREATE TABLE partition_changes (
  gpu VARCHAR NOT NULL,
  attempt INTEGER NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (gpu, attempt)
);
CREATE INDEX ix_partition_changes_at ON partition_changes (at);
CREATE TABLE reservations (
  holder VARCHAR NOT NULL,
  reservation TEXT NOT NULL,
  PRIMARY KEY (holder)
);
CREATE TABLE interventions (
  number INTEGER NOT NULL,
  kind VARCHAR NOT NULL,
  subject_kind VARCHAR NOT NULL,
  subject VARCHAR NOT NULL,
  author VARCHAR NOT NULL,
  reason TEXT NOT NULL,
  at BIGINT NOT NULL,
  until BIGINT NOT NULL,
  ended_at BIGINT,
  ended_as VARCHAR NOT NULL,
  ended_by VARCHAR NOT NULL,
  PRIMARY KEY (number)
);
CREATE INDEX ix_interventions_ended_at ON interventions (ended_at);
CREATE TABLE approvals (
  number INTEGER NOT NULL,
  "commit" VARCHAR NOT NULL,
  reason VARCHAR NOT NULL,
  in_place_of VARCHAR NOT NULL,
  author VARCHAR NOT NULL,
  why TEXT NOT NULL,
  at BIGINT NOT NULL,
  used_at BIGINT,
  PRIMARY KEY (number)
);
CREATE INDEX ix_approvals_commit ON approvals ("commit");
CREATE TABLE accepted_plans (
  meaning VARCHAR NOT NULL,
  envelope TEXT NOT NULL,
  author VARCHAR NOT NULL,
  why TEXT NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (meaning)
);
CREATE TABLE suspensions (
  number INTEGER NOT NULL,
  author VARCHAR NOT NULL,
  why TEXT NOT NULL,
  at BIGINT NOT NULL,
  until BIGINT,
  ended_at BIGINT,
  ended_by VARCHAR NOT NULL,
  PRIMARY KEY (number)
);
CREATE INDEX ix_suspensions_ended_at ON suspensions (ended_at);
CREATE TABLE webhooks (
  webhook VARCHAR NOT NULL,
  cursor BIGINT NOT NULL,
  target VARCHAR NOT NULL,
  delivered BIGINT NOT NULL,
  given_up BIGINT NOT NULL,
  answered_at BIGINT,
  failing_since BIGINT,
  tries BIGINT NOT NULL,
  not_before BIGINT NOT NULL,
  problem TEXT NOT NULL,
  stopped BOOLEAN NOT NULL,
  PRIMARY KEY (webhook)
);
CREATE TABLE kept (
  what VARCHAR NOT NULL,
  document TEXT NOT NULL,
  PRIMARY KEY (what)
);
CREATE TABLE rounds (
  number INTEGER NOT NULL,
  time BIGINT NOT NULL,
  revision VARCHAR NOT NULL,
  starts INTEGER NOT NULL,
  waits INTEGER NOT NULL,
  inadmissible INTEGER NOT NULL,
  stage VARCHAR NOT NULL,
  duration_ms FLOAT NOT NULL,
  verdicts VARCHAR NOT NULL,
  record BLOB NOT NULL,
  PRIMARY KEY (number)
);
CREATE TABLE events (
  number INTEGER NOT NULL,
  time BIGINT NOT NULL,
  kind VARCHAR NOT NULL,
  subject VARCHAR NOT NULL,
  cause TEXT NOT NULL,
  actor VARCHAR NOT NULL,
  state VARCHAR NOT NULL,
  attempt INTEGER DEFAULT '0' NOT NULL,
  purpose VARCHAR DEFAULT '' NOT NULL,
  beneficiary VARCHAR DEFAULT '' NOT NULL,
  PRIMARY KEY (number)
);
CREATE INDEX events_subject ON events (subject, number);
CREATE TABLE failures (
  job VARCHAR NOT NULL,
  attempt INTEGER NOT NULL,
  outlived INTEGER NOT NULL,
  failure TEXT NOT NULL,
  PRIMARY KEY (job, attempt, outlived),
  FOREIGN KEY(job) REFERENCES jobs (name)
);
CREATE TABLE attempts (
  job VARCHAR NOT NULL,
  last INTEGER NOT NULL,
  served_gpu_ms BIGINT NOT NULL,
  PRIMARY KEY (job),
  FOREIGN KEY(job) REFERENCES jobs (name)
);
CREATE TABLE claims (
  job VARCHAR NOT NULL,
  attempt INTEGER NOT NULL,
  tasks TEXT NOT NULL,
  since BIGINT NOT NULL,
  running_since BIGINT,
  time_limit BIGINT,
  idle_limit BIGINT,
  growth INTEGER NOT NULL,
  ran_gpu_ms BIGINT NOT NULL,
  sized_at BIGINT,
  marks TEXT,
  PRIMARY KEY (job),
  FOREIGN KEY(job) REFERENCES jobs (name)
);
CREATE TABLE nominations (
  job VARCHAR NOT NULL,
  intent TEXT NOT NULL,
  PRIMARY KEY (job),
  FOREIGN KEY(job) REFERENCES jobs (name)
);
CREATE TABLE evictions (
  job VARCHAR NOT NULL,
  attempt INTEGER NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (job, attempt),
  FOREIGN KEY(job) REFERENCES jobs (name)
);
CREATE TABLE checkpoints (
  job VARCHAR NOT NULL,
  attempt INTEGER NOT NULL,
  step BIGINT NOT NULL,
  storage VARCHAR NOT NULL,
  url TEXT NOT NULL,
  world_size INTEGER NOT NULL,
  size BIGINT NOT NULL,
  digest VARCHAR NOT NULL,
  at BIGINT NOT NULL,
  state VARCHAR NOT NULL,
  findings TEXT NOT NULL,
  answers INTEGER NOT NULL,
  resumed_by INTEGER NOT NULL,
  PRIMARY KEY (job, attempt, step),
  FOREIGN KEY(job) REFERENCES jobs (name)
);
CREATE INDEX ix_checkpoints_state ON checkpoints (state);
CREATE TABLE holdings (
  device VARCHAR NOT NULL,
  job VARCHAR NOT NULL,
  milli INTEGER NOT NULL,
  charged INTEGER NOT NULL,
  gpu VARCHAR NOT NULL,
  PRIMARY KEY (device, job),
  FOREIGN KEY(job) REFERENCES claims (job) ON DELETE CASCADE
);
CREATE INDEX ix_holdings_job ON holdings (job);
CREATE INDEX ix_holdings_gpu ON holdings (gpu);
CREATE TABLE intents (
  id VARCHAR NOT NULL,
  job VARCHAR NOT NULL,
  intent TEXT NOT NULL,
  PRIMARY KEY (id),
  FOREIGN KEY(job) REFERENCES claims (job) ON DELETE CASCADE
);
CREATE INDEX ix_intents_job ON intents (job);
INSERT INTO schema_version VALUES (13);
INSERT INTO leadership VALUES (1, '', 0, 0);
