-- The heart: events, the runs' rows, snapshots, definitions, global data, records, the owner.
--
-- Applied in one transaction, in a schema of its own that is first in the search path. Released migrations are never edited,
-- and only add: a Penstock that knows an older one goes on working beside it. Functions carry the number of
-- the migration that made them, and stay.

-- The log, in commit order: see `append_1` for why.
CREATE TABLE events (
  position bigint  PRIMARY KEY,
  run      bigint  NOT NULL,
  seq      integer NOT NULL,
  payload  bytea   NOT NULL,
  hash     bytea   NOT NULL,
  nonce    bigint -- of the commit, with its first event: who lost the answer finds its own again
);
CREATE UNIQUE INDEX events_of_run ON events (run, seq);

-- No column that changes while a run is open stands in an index, so that such a change stays within its page. Hence
-- `closed_as`: the status once the run is closed, null while it is open.
CREATE TABLE runs (
  run        bigint           PRIMARY KEY,
  id         text COLLATE "C" NOT NULL,
  generation integer          NOT NULL,
  definition text COLLATE "C" NOT NULL,
  version    text             NOT NULL,
  status     text             NOT NULL,
  revision   integer          NOT NULL,
  created_at double precision NOT NULL,
  updated_at double precision NOT NULL,
  priority   integer          NOT NULL,
  paused     boolean          NOT NULL,
  closed_as  text COLLATE "C",
  next_due   double precision,
  deadline   double precision,
  ended_at   double precision,
  created_by text,
  parent     text COLLATE "C",
  attributes bytea            NOT NULL,
  hash       bytea            NOT NULL,
  position   bigint           NOT NULL
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX runs_by_id ON runs (id, generation);
CREATE INDEX runs_open ON runs (run) WHERE closed_as IS NULL;
CREATE INDEX runs_closed ON runs (closed_as, run) WHERE closed_as IS NOT NULL;
CREATE INDEX runs_by_definition ON runs (definition, run);
CREATE INDEX runs_by_parent ON runs (parent) WHERE parent IS NOT NULL;

-- When the runs of each 1024 neighbouring keys were created; stands for an index by time.
CREATE TABLE spans (
  span   bigint           PRIMARY KEY,
  oldest double precision NOT NULL,
  newest double precision NOT NULL
) WITH (fillfactor = 50);

-- Positions and keys are the highest plus one, and never given twice.
CREATE FUNCTION newest_stays() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE newest bigint;
BEGIN
  IF TG_TABLE_NAME = 'events' THEN
    SELECT max(position) INTO newest FROM events;
    IF old.position = newest THEN
      RAISE 'the newest event must stay, so that its position is never reused';
    END IF;
  ELSE
    SELECT max(run) INTO newest FROM runs;
    IF old.run = newest THEN
      RAISE 'the newest run must stay, so that its key is never reused';
    END IF;
  END IF;
  RETURN old;
END $$;
ALTER FUNCTION newest_stays() SET search_path FROM CURRENT;
CREATE TRIGGER events_newest_stays BEFORE DELETE ON events
  FOR EACH ROW EXECUTE FUNCTION newest_stays();
CREATE TRIGGER runs_newest_stays BEFORE DELETE ON runs
  FOR EACH ROW EXECUTE FUNCTION newest_stays();

-- Only runs that have attributes are here; `value` is canonical JSON. With `closed_as` as in the run's row, so that a status
-- and an attribute together are found in one index, however seldom they meet; kept when the run closes.
CREATE TABLE attributes (
  name      text COLLATE "C" NOT NULL,
  value     text COLLATE "C" NOT NULL,
  run       bigint           NOT NULL,
  closed_as text COLLATE "C",
  PRIMARY KEY (name, value, run)
);
CREATE INDEX attributes_open ON attributes (name, value, run) WHERE closed_as IS NULL;
CREATE INDEX attributes_closed ON attributes (name, value, closed_as, run) WHERE closed_as IS NOT NULL;

CREATE TABLE snapshots (
  run      bigint  PRIMARY KEY,
  revision integer NOT NULL,
  state    bytea   NOT NULL,
  hash     bytea   NOT NULL
);

CREATE TABLE definitions (
  id         text COLLATE "C" NOT NULL,
  version    text COLLATE "C" NOT NULL,
  number     integer          NOT NULL,
  document   bytea            NOT NULL,
  digest     bytea            NOT NULL,
  created_at double precision NOT NULL,
  created_by text,
  PRIMARY KEY (id, version)
);
CREATE UNIQUE INDEX definitions_by_number ON definitions (id, number);

CREATE TABLE globals (
  name  text  PRIMARY KEY,
  value bytea NOT NULL
);

CREATE TABLE records (
  kind     text COLLATE "C"  NOT NULL,
  id       text COLLATE "C"  NOT NULL,
  value    bytea             NOT NULL,
  revision integer           NOT NULL,
  due      double precision,
  expires  double precision,
  PRIMARY KEY (kind, id)
);
CREATE INDEX records_due ON records (kind, due, id) WHERE due IS NOT NULL;
CREATE INDEX records_expire ON records (expires) WHERE expires IS NOT NULL;

-- Deleted runs whose events are not all deleted yet: the run is gone at once, its events follow in small commits.
CREATE TABLE leftovers (
  run bigint PRIMARY KEY
);

-- Payloads too large to stand in their event, which names them by the digest of these bytes.
CREATE TABLE blobs (
  run    bigint NOT NULL,
  digest bytea  NOT NULL,
  bytes  bytea  NOT NULL,
  PRIMARY KEY (run, digest)
);
ALTER TABLE blobs ALTER bytes SET STORAGE EXTERNAL; -- compressed already where it pays

-- Commits that are no appends and may not be done twice: who lost the answer looks here. Cleaned up after an hour.
CREATE TABLE writes (
  nonce    bigint           PRIMARY KEY,
  at       double precision NOT NULL,
  outcomes integer[]        NOT NULL -- of each record: -1 written, else the revision that was there
);

-- One row: who executes the runs, under which fencing token, and until when that is to be believed.
CREATE TABLE owner (
  one        integer          PRIMARY KEY CHECK (one = 1),
  node       text             NOT NULL,
  token      bigint           NOT NULL,
  address    text             NOT NULL,
  since      double precision NOT NULL,
  renewed_at double precision NOT NULL,
  pid        bigint           NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE meta (
  name  text PRIMARY KEY,
  value text NOT NULL
);
INSERT INTO meta (name, value) VALUES ('store', replace(gen_random_uuid()::text, '-', ''));

-- One group of appends: whole, or an error and nothing. PSJ01, or a key that is there already (23505): not all of it
-- holds at once; judge each by itself.
--
-- Positions rise in commit order because they are given under a lock that is held until the commit is visible: nobody
-- can commit a lower one later. The lock is no row, so that a transaction that somebody keeps open for long
-- leaves no trail of dead versions behind it; and what is read under it is the newest there is. The token is
-- read under the same lock that a new owner takes to write its own: no race remains.
--
-- New runs are s_*, changed runs c_*, attributes of new and of closing runs a_*, events e_*; the n-th new run is known as -n.
CREATE FUNCTION append_1(
  nonce bigint, token bigint, judged boolean, hints text[],
  s_id text[], s_generation integer[], s_definition text[], s_version text[], s_status text[],
  s_revision integer[], s_created_at double precision[], s_updated_at double precision[],
  s_priority integer[], s_paused boolean[], s_open boolean[], s_next_due double precision[],
  s_deadline double precision[], s_ended_at double precision[], s_created_by text[], s_parent text[],
  s_attributes bytea[], s_hash bytea[], s_offset integer[],
  a_run bigint[], a_name text[], a_value text[],
  c_run bigint[], c_expected integer[], c_previous bytea[], c_version text[], c_status text[],
  c_revision integer[], c_updated_at double precision[], c_priority integer[], c_paused boolean[],
  c_open boolean[], c_next_due double precision[], c_deadline double precision[],
  c_ended_at double precision[], c_attributes bytea[], c_hash bytea[], c_offset integer[],
  e_run bigint[], e_seq integer[], e_payload bytea[], e_hash bytea[],
  OUT first_position bigint, OUT first_run bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  changed bigint;
  newest bigint;
  hint text;
BEGIN
  PERFORM pg_advisory_xact_lock(1885302640, hashtext(current_schema()));
  SELECT coalesce(max(e.position), 0) INTO first_position FROM events e;
  IF append_1.token IS NOT NULL THEN
    SELECT o.token INTO newest FROM owner o;
    IF append_1.token < newest THEN
      RAISE 'an older owner' USING ERRCODE = 'PSJ01';
    END IF;
  END IF;
  IF cardinality(c_run) > 0 THEN
    UPDATE runs r SET
      version = c.version, status = c.status, revision = c.revision, updated_at = c.updated_at,
      priority = c.priority, paused = c.paused,
      closed_as = CASE WHEN c.open THEN NULL ELSE c.status END,
      next_due = c.next_due, deadline = c.deadline, ended_at = c.ended_at, attributes = c.attributes,
      hash = c.hash, position = append_1.first_position + c.ahead
    FROM unnest(c_run, c_expected, c_previous, c_version, c_status, c_revision, c_updated_at,
      c_priority, c_paused, c_open, c_next_due, c_deadline, c_ended_at, c_attributes, c_hash, c_offset)
      AS c (run, expected, previous, version, status, revision, updated_at, priority, paused, open,
      next_due, deadline, ended_at, attributes, hash, ahead)
    WHERE r.run = c.run AND r.revision = c.expected AND r.hash = c.previous
      AND (append_1.judged OR (r.attributes = c.attributes AND r.closed_as IS NULL));
    GET DIAGNOSTICS changed = ROW_COUNT;
    IF changed <> cardinality(c_run) THEN
      RAISE 'another writer was first' USING ERRCODE = 'PSJ01';
    END IF;
  END IF;
  IF cardinality(s_id) > 0 THEN
    SELECT coalesce(max(r.run), 0) INTO first_run FROM runs r;
    INSERT INTO runs (run, id, generation, definition, version, status, revision, created_at,
      updated_at, priority, paused, closed_as, next_due, deadline, ended_at, created_by, parent,
      attributes, hash, position)
    SELECT append_1.first_run + s.place, s.id, s.generation, s.definition, s.version, s.status,
      s.revision, s.created_at, s.updated_at, s.priority, s.paused,
      CASE WHEN s.open THEN NULL ELSE s.status END, s.next_due, s.deadline, s.ended_at,
      s.created_by, s.parent, s.attributes, s.hash, append_1.first_position + s.ahead
    FROM unnest(s_id, s_generation, s_definition, s_version, s_status, s_revision, s_created_at,
      s_updated_at, s_priority, s_paused, s_open, s_next_due, s_deadline, s_ended_at, s_created_by,
      s_parent, s_attributes, s_hash, s_offset) WITH ORDINALITY
      AS s (id, generation, definition, version, status, revision, created_at, updated_at, priority,
      paused, open, next_due, deadline, ended_at, created_by, parent, attributes, hash, ahead, place);
    INSERT INTO spans AS now (span, oldest, newest)
      SELECT (append_1.first_run + s.place) / 1024, min(s.created_at), max(s.created_at)
      FROM unnest(s_created_at) WITH ORDINALITY AS s (created_at, place) GROUP BY 1
      ON CONFLICT (span) DO UPDATE SET oldest = least(now.oldest, excluded.oldest),
        newest = greatest(now.newest, excluded.newest)
      WHERE excluded.oldest < now.oldest OR excluded.newest > now.newest;
    IF cardinality(a_run) > 0 THEN
      INSERT INTO attributes (name, value, run, closed_as)
        SELECT a.name, a.value, r.run, r.closed_as
        FROM unnest(a_name, a_value, a_run) AS a (name, value, place)
        JOIN runs r ON r.run = append_1.first_run - a.place
        WHERE a.place < 0;
    END IF;
  END IF;
  IF cardinality(a_run) > 0 AND cardinality(c_run) > 0 THEN
    UPDATE attributes kept SET closed_as = r.closed_as
      FROM unnest(a_name, a_value, a_run) AS a (name, value, run) JOIN runs r ON r.run = a.run
      WHERE kept.name = a.name AND kept.value = a.value AND kept.run = a.run
        AND kept.closed_as IS DISTINCT FROM r.closed_as;
  END IF;
  INSERT INTO events (position, run, seq, payload, hash, nonce)
    SELECT append_1.first_position + e.place,
      CASE WHEN e.run < 0 THEN append_1.first_run - e.run ELSE e.run END, e.seq, e.payload, e.hash,
      CASE WHEN e.place = 1 THEN append_1.nonce END
    FROM unnest(e_run, e_seq, e_payload, e_hash) WITH ORDINALITY
      AS e (run, seq, payload, hash, place);
  FOREACH hint IN ARRAY hints LOOP
    PERFORM pg_notify(current_schema() || '.hints', hint);
  END LOOP;
END $$;
-- Plans are made once: tables grow faster than their statistics, so the shape is fixed here.
ALTER FUNCTION append_1 SET search_path FROM CURRENT;
ALTER FUNCTION append_1 SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION append_1 SET enable_seqscan = off;
ALTER FUNCTION append_1 SET enable_hashjoin = off;
ALTER FUNCTION append_1 SET enable_mergejoin = off;
ALTER FUNCTION append_1 SET enable_bitmapscan = off;
ALTER FUNCTION append_1 SET jit = off;
