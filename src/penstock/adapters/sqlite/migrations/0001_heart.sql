-- The heart: events, the runs' rows, snapshots, definitions, global data, the owner.
--
-- Applied in one transaction; `user_version` then says 1. Released migrations are never edited.
-- Every index below is paid for at each start or end of a run (about 1 µs each, measured with 200
-- runs a commit), so there is one only where a listing would otherwise read the whole table.

-- The log. A rowid table in commit order plus one index: several times faster for interleaved runs
-- than a table keyed (run, seq).
CREATE TABLE events (
  position INTEGER PRIMARY KEY,
  run      INTEGER NOT NULL,
  seq      INTEGER NOT NULL,
  payload  BLOB    NOT NULL,
  hash     BLOB    NOT NULL
);
CREATE UNIQUE INDEX events_of_run ON events (run, seq);

CREATE TABLE runs (
  run        INTEGER PRIMARY KEY,
  id         TEXT    NOT NULL,
  generation INTEGER NOT NULL,
  definition TEXT    NOT NULL,
  version    TEXT    NOT NULL,
  status     TEXT    NOT NULL,
  revision   INTEGER NOT NULL,
  created_at REAL    NOT NULL,
  updated_at REAL    NOT NULL,
  priority   INTEGER NOT NULL,
  paused     INTEGER NOT NULL,
  open       INTEGER NOT NULL,
  next_due   REAL,
  deadline   REAL,
  ended_at   REAL,
  created_by TEXT,
  parent     TEXT,
  attributes BLOB    NOT NULL,
  hash       BLOB    NOT NULL,
  position   INTEGER NOT NULL
);
CREATE UNIQUE INDEX runs_by_id ON runs (id, generation);
-- Open runs are few beside closed ones: what is open is found here whatever its status, so that a
-- change of status costs no index; a closed run's status never changes again.
CREATE INDEX runs_open ON runs (run) WHERE open = 1;
CREATE INDEX runs_closed ON runs (status, run) WHERE open = 0;
CREATE INDEX runs_by_definition ON runs (definition, run);
-- Not on an expression: one that may fail makes SQLite keep a journal for every statement that inserts many.
CREATE INDEX runs_by_parent ON runs (parent) WHERE parent IS NOT NULL;

-- When the runs of each 1024 neighbouring keys were created. Keys rise about as time does, so that this small
-- table stands for an index by time, at the cost of one row a commit instead of one entry a run.
CREATE TABLE spans (
  span   INTEGER PRIMARY KEY,
  oldest REAL NOT NULL,
  newest REAL NOT NULL
);

-- Positions and keys are the highest plus one. They are never given twice, as the newest of each
-- may not be deleted: whoever cleans up leaves it until there is a newer one.
CREATE TRIGGER events_newest_stays BEFORE DELETE ON events
  WHEN old.position = (SELECT max(position) FROM events)
  BEGIN SELECT raise(ABORT, 'the newest event must stay, so that its position is never reused'); END;
CREATE TRIGGER runs_newest_stays BEFORE DELETE ON runs
  WHEN old.run = (SELECT max(run) FROM runs)
  BEGIN SELECT raise(ABORT, 'the newest run must stay, so that its key is never reused'); END;

-- Only runs that have attributes are here; `value` is canonical JSON.
CREATE TABLE attributes (
  name  TEXT    NOT NULL,
  value TEXT    NOT NULL,
  run   INTEGER NOT NULL,
  PRIMARY KEY (name, value, run)
) WITHOUT ROWID;

CREATE TABLE snapshots (
  run      INTEGER PRIMARY KEY,
  revision INTEGER NOT NULL,
  state    BLOB    NOT NULL,
  hash     BLOB    NOT NULL
);

CREATE TABLE definitions (
  id         TEXT    NOT NULL,
  version    TEXT    NOT NULL,
  number     INTEGER NOT NULL,
  document   BLOB    NOT NULL,
  digest     BLOB    NOT NULL,
  created_at REAL    NOT NULL,
  created_by TEXT,
  PRIMARY KEY (id, version)
);
CREATE UNIQUE INDEX definitions_by_number ON definitions (id, number);

CREATE TABLE globals (
  name  TEXT PRIMARY KEY,
  value BLOB NOT NULL
) WITHOUT ROWID;

-- One row: who executes the runs, under which fencing token. The lock file beside the database is
-- what decides; this is for showing it and for refusing what an older owner still wants to write.
CREATE TABLE owner (
  one        INTEGER PRIMARY KEY CHECK (one = 1),
  node       TEXT    NOT NULL,
  token      INTEGER NOT NULL,
  address    TEXT    NOT NULL,
  since      REAL    NOT NULL,
  renewed_at REAL    NOT NULL,
  pid        INTEGER NOT NULL
);

CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO meta (name, value) VALUES ('store', lower(hex(randomblob(16))));
