"""Other durable engines, each measured as its own documentation tells to use it."""
