"""How applications test with Penstock: an engine whose clock skips, stubs, histories (SPEC 13)."""

from __future__ import annotations

from penstock.testing.harness import Harness, harness
from penstock.testing.histories import Golden, Steps, lines_of, replayed
from penstock.testing.stubs import stub

__all__ = ["Golden", "Harness", "Steps", "harness", "lines_of", "replayed", "stub"]
