"""Fixtures that any test may ask for."""

from support.cli import tool
from support.postgres import postgres, postgres_url
from support.stores import databases, make_store

__all__ = ["databases", "make_store", "postgres", "postgres_url", "tool"]
