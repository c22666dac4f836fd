"""The store on SQLite: one file, one writer at a time, on disk before anybody is told."""

from penstock.adapters.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
