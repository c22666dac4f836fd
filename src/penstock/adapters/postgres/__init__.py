"""The store on PostgreSQL: many processes on one database, on disk before anybody is told (extra `postgres`)."""

from penstock.adapters.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
