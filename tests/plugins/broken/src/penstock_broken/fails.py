"""Needs what is not installed."""

import a_module_that_nobody_has  # noqa: F401  # pyright: ignore
