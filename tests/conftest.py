"""Fixtures that any test may ask for."""

from support.postgres import postgres, postgres_url
from support.stores import make_store, postgres_template

__all__ = ["make_store", "postgres", "postgres_template", "postgres_url"]
