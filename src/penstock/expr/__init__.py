"""Expressions: our own CEL, from text to closures, and templates with expressions in them."""
