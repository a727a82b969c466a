-- The tables of schema version 14, as 0.2.0 made them. Never edited: databases look like this.
CREATE TABLE schema_version (
  version INTEGER NOT NULL,
  readable_from INTEGER DEFAULT '14' NOT NULL,
  PRIMARY KEY (version)
);
CREATE TABLE leadership (
  id INTEGER NOT NULL,
  holder VARCHAR NOT NULL,
  epoch BIGINT NOT NULL,
  until BIGINT NOT NULL,
  written BIGINT DEFAULT '0' NOT NULL,
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
  queue VARCHAR,
  priority_class VARCHAR,
  gpu_types VARCHAR,
  gpus BIGINT DEFAULT '0' NOT NULL,
  called VARCHAR,
  PRIMARY KEY (number),
  UNIQUE (name)
);
CREATE INDEX ix_jobs_array_id ON jobs (array_id);
CREATE INDEX ix_jobs_called ON jobs (called);
CREATE INDEX jobs_by_size ON jobs (gpus, number);
CREATE INDEX ix_jobs_ended_at ON jobs (ended_at);
CREATE INDEX ix_jobs_pipeline ON jobs (pipeline);
CREATE INDEX live_jobs_by_size ON jobs (ended_at, gpus, number);
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
CREATE TABLE placements (
  number INTEGER NOT NULL,
  job VARCHAR NOT NULL,
  attempt INTEGER NOT NULL,
  queue VARCHAR NOT NULL,
  user VARCHAR NOT NULL,
  gpu_type VARCHAR NOT NULL,
  gpus BIGINT NOT NULL,
  since BIGINT NOT NULL,
  until BIGINT NOT NULL,
  ended VARCHAR DEFAULT '' NOT NULL,
  beneficiary VARCHAR DEFAULT '' NOT NULL,
  PRIMARY KEY (number)
);
CREATE INDEX ix_placements_until ON placements (until);
CREATE INDEX ix_placements_job ON placements (job);
CREATE TABLE capacity (
  number INTEGER NOT NULL,
  node VARCHAR NOT NULL,
  pool VARCHAR NOT NULL,
  gpu_type VARCHAR NOT NULL,
  since BIGINT NOT NULL,
  until BIGINT NOT NULL,
  devices BLOB NOT NULL,
  PRIMARY KEY (number)
);
CREATE INDEX ix_capacity_until ON capacity (until);
CREATE INDEX capacity_node ON capacity (node, until);
CREATE TABLE capacity_watches (
  number INTEGER NOT NULL,
  since BIGINT NOT NULL,
  until BIGINT NOT NULL,
  PRIMARY KEY (number)
);
CREATE INDEX ix_capacity_watches_until ON capacity_watches (until);
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
  keyframe INTEGER,
  base INTEGER,
  PRIMARY KEY (number)
);
CREATE INDEX rounds_base ON rounds (base, number);
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
CREATE TABLE audit_links (
  chain VARCHAR NOT NULL,
  number BIGINT NOT NULL,
  time BIGINT NOT NULL,
  kind VARCHAR NOT NULL,
  record BIGINT NOT NULL,
  digest BLOB NOT NULL,
  previous BLOB NOT NULL,
  "key" VARCHAR NOT NULL,
  mac BLOB NOT NULL,
  note TEXT NOT NULL,
  PRIMARY KEY (chain, number)
) WITHOUT ROWID;
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
CREATE TABLE node_health (
  node VARCHAR NOT NULL,
  record TEXT NOT NULL,
  forgiven_at BIGINT,
  PRIMARY KEY (node)
);
CREATE TABLE agents (
  node VARCHAR NOT NULL,
  generation BIGINT NOT NULL,
  joined_at BIGINT NOT NULL,
  renewed_at BIGINT NOT NULL,
  until BIGINT NOT NULL,
  revoked_at BIGINT,
  revoked_by VARCHAR NOT NULL,
  PRIMARY KEY (node)
);
CREATE TABLE agent_invitations (
  node VARCHAR NOT NULL,
  token_hash VARCHAR NOT NULL,
  "by" VARCHAR NOT NULL,
  at BIGINT NOT NULL,
  until BIGINT NOT NULL,
  "key" VARCHAR NOT NULL,
  PRIMARY KEY (node),
  UNIQUE (token_hash)
);
CREATE TABLE ended_gangs (
  job VARCHAR NOT NULL,
  submitted_at BIGINT NOT NULL,
  queue VARCHAR NOT NULL,
  priority_class VARCHAR NOT NULL,
  gpus BIGINT NOT NULL,
  ran BIGINT NOT NULL,
  PRIMARY KEY (job, submitted_at)
);
CREATE INDEX ix_ended_gangs_submitted_at ON ended_gangs (submitted_at);
CREATE TABLE gang_evictions (
  job VARCHAR NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (job, at)
);
CREATE TABLE sessions (
  secret_hash VARCHAR NOT NULL,
  until BIGINT NOT NULL,
  session TEXT NOT NULL,
  PRIMARY KEY (secret_hash)
);
CREATE INDEX ix_sessions_until ON sessions (until);
CREATE TABLE gpu_use (
  step VARCHAR NOT NULL,
  start BIGINT NOT NULL,
  node VARCHAR NOT NULL,
  block BLOB NOT NULL,
  PRIMARY KEY (step, start, node)
);
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
  gpu_types TEXT,
  PRIMARY KEY (job),
  FOREIGN KEY(job) REFERENCES jobs (name)
);
CREATE TABLE placement_nodes (
  placement INTEGER NOT NULL,
  node VARCHAR NOT NULL,
  until BIGINT NOT NULL,
  gpus BIGINT NOT NULL,
  tasks BLOB NOT NULL,
  PRIMARY KEY (placement, node),
  FOREIGN KEY(placement) REFERENCES placements (number) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX placement_nodes_node ON placement_nodes (node, until);
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
CREATE INDEX ix_holdings_gpu ON holdings (gpu);
CREATE INDEX ix_holdings_job ON holdings (job);
CREATE TABLE intents (
  id VARCHAR NOT NULL,
  job VARCHAR NOT NULL,
  intent TEXT NOT NULL,
  PRIMARY KEY (id),
  FOREIGN KEY(job) REFERENCES claims (job) ON DELETE CASCADE
);
CREATE INDEX ix_intents_job ON intents (job);
INSERT INTO schema_version VALUES (14, 14);
INSERT INTO leadership VALUES (1, '', 0, 0, 0);
