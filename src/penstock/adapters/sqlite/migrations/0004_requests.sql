-- Runs that applications asked for inside their own transactions, and that the owner has not made runs yet (SPEC 4.3).
-- No position and no uniqueness: a transaction that stays open holds up nobody by what it wrote here.
CREATE TABLE requests (
  number     INTEGER PRIMARY KEY AUTOINCREMENT,
  id         TEXT    NOT NULL,
  definition TEXT    NOT NULL,
  version    TEXT    NOT NULL,
  input      BLOB    NOT NULL,
  facts      BLOB    NOT NULL,
  at         REAL    NOT NULL
);
