"""Fixtures that any test may ask for."""

import signal

from support.cli import tool
from support.postgres import postgres, postgres_url
from support.stores import databases, make_store

__all__ = ["databases", "make_store", "postgres", "postgres_url", "tool"]

# A shell starts what runs in the background with Ctrl-C ignored, and every process of a test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
