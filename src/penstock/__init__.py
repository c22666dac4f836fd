"""Durable workflows for Python."""
