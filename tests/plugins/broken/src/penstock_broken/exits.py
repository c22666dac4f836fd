"""Ends whoever imports it."""

import sys

sys.exit("no licence")
