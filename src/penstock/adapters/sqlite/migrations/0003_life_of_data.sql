-- Deleted runs whose events are not all deleted yet: the run is gone at once, its events follow in small commits.
CREATE TABLE leftovers (
  run INTEGER PRIMARY KEY
);

-- Payloads too large to stand in their event, which names them by the digest of these bytes.
CREATE TABLE blobs (
  run    INTEGER NOT NULL,
  digest BLOB    NOT NULL,
  bytes  BLOB    NOT NULL,
  PRIMARY KEY (run, digest)
);
