"""A plugin as its author would write it; nothing here knows the engine."""
