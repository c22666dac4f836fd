-- Records: small named documents beside the runs (schedules, batches of control, positions of projections,
-- remembered commands), written by compare-and-set on their revision.
CREATE TABLE records (
  kind     TEXT    NOT NULL,
  id       TEXT    NOT NULL,
  value    BLOB    NOT NULL,
  revision INTEGER NOT NULL,
  due      REAL,
  expires  REAL,
  PRIMARY KEY (kind, id)
);
CREATE INDEX records_due ON records (kind, due, id) WHERE due IS NOT NULL;
CREATE INDEX records_expire ON records (expires) WHERE expires IS NOT NULL;
