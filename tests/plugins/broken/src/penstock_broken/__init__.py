"""Each module is wrong in its own way."""
