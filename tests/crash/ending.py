"""The third book: definitions alone whose tasks are done though they were given up (`Run.ending`, decision 23), so that whatever
point is reached, it is one of theirs."""

from __future__ import annotations

from crash import workload

SNAPSHOT_EVENTS = 3
"""A start, a result, a failure: many a run has one right then."""
ACTIVITIES, WORKFLOWS = workload.ACTIVITIES, workload.WORKFLOWS
DEFINITIONS = [each for each in workload.DEFINITIONS if each["id"] == "torn"]
wanted = workload.torn
