-- Runs that applications asked for inside their own transactions, and that the owner has not made runs yet (SPEC 4.3).
-- No position and no uniqueness: a transaction that stays open holds up and hides nobody else's.
CREATE TABLE requests (
  number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id         text             NOT NULL,
  definition text             NOT NULL,
  version    text             NOT NULL,
  input      bytea            NOT NULL,
  facts      bytea            NOT NULL,
  at         double precision NOT NULL
);
