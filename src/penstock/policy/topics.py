"""Topics of the bus and the patterns that match them (SPEC 7.1).

A topic is words with dots between them. In a pattern `*` stands for one word and `>`, as the last, for one or more.
"""

from __future__ import annotations

import re

TOPIC_CHARACTERS_MAX = 255
_TOPIC = re.compile(r"[^.\s*>]+(\.[^.\s*>]+)*\Z")
_PATTERN = re.compile(r"([^.\s*>]+|\*)(\.([^.\s*>]+|\*))*(\.>)?\Z|>\Z")


def is_topic(text: str) -> bool:
    return len(text) <= TOPIC_CHARACTERS_MAX and _TOPIC.match(text) is not None


def is_pattern(text: str) -> bool:
    """A topic is a pattern too."""
    return len(text) <= TOPIC_CHARACTERS_MAX and _PATTERN.match(text) is not None


def has_wildcard(pattern: str) -> bool:
    return "*" in pattern or ">" in pattern


def topic_matches(pattern: str, topic: str) -> bool:
    """Whether the pattern stands for this topic."""
    if pattern == topic:
        return True
    if not has_wildcard(pattern):
        return False
    wanted, given = pattern.split("."), topic.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        if len(given) <= len(wanted):
            return False
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(
        want in ("*", word) for want, word in zip(wanted, given, strict=True)
    )
