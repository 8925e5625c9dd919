"""Regular expressions over topic names, matched in linear time.

Members send expressions in the syntax of RE2, which never backtracks. Python's `re` does: an expression like `(a+)+b`
could block the coordinator for hours. Topic names consist of 65 different characters, so a character class is a small
set. `topic_pattern_parser` turns the text into a tree, and this module builds a nondeterministic automaton from it
(Thompson's construction). The transitions between sets of states are cached. The size of the automaton and the work of
one call are bounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct, field

from ottla.broker.groups.consumer.topic_pattern_parser import (
    Anchor,
    Choice,
    Node,
    OneOf,
    PatternError,
    Repeat,
    Sequence,
    parsed,
)

_STATES_MAX: Final = 5_000
# The maximum number of states that one call may visit.
_WORK_MAX: Final = 1_000_000


class _State(Struct):
    """A state of the automaton. If `takes` is None, its transitions need no character."""

    takes: frozenset[str] | None = None
    anchor: Anchor | None = None
    next: list[int] = field(default_factory=list)


class TopicPattern:
    """A compiled expression. It matches whole names only."""

    def __init__(self, text: str) -> None:
        """Compile an expression; PatternError if it is invalid or too large."""
        self.text = text
        self._states: list[_State] = []
        self._end = self._add(_State())
        first = self._build(parsed(text), self._end)
        self._work = 0
        self._start = self._closure([first], at_start=True)
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        # The results of the last call, by name.
        self._known: dict[str, bool] = {}

    def __repr__(self) -> str:
        return f"<TopicPattern {self.text!r} states={len(self._states)}>"

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        """Return the names that match; PatternError if that takes too much work."""
        self._work = 0
        self._steps.clear()
        before = self._known
        self._known = {}
        for name in names:
            is_known = before.get(name)
            self._known[name] = self._matches(name) if is_known is None else is_known
        return frozenset(name for name, is_match in self._known.items() if is_match)

    def _matches(self, name: str) -> bool:
        current = self._start
        for character in name:
            following = self._steps.get((current, character))
            if following is None:
                following = self._steps[current, character] = self._step(current, character)
            if not following:
                return False
            current = following
        return self._end in self._closure(current, at_end=True)

    def _step(self, current: frozenset[int], character: str) -> frozenset[int]:
        self._spend(len(current))
        taken = [
            state.next[0]
            for state in (self._states[number] for number in current)
            if state.takes is not None and character in state.takes
        ]
        return self._closure(taken)

    def _closure(self, first: Iterable[int], *, at_start: bool = False, at_end: bool = False) -> frozenset[int]:
        """Return all states that can be reached without a character."""
        found: set[int] = set()
        open_ = list(first)
        while open_:
            number = open_.pop()
            if number in found:
                continue
            found.add(number)
            state = self._states[number]
            is_open = state.anchor is None or (at_start if state.anchor is Anchor.START else at_end)
            if state.takes is None and is_open:
                open_ += state.next
        self._spend(len(found))
        return frozenset(found)

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > _WORK_MAX:
            raise PatternError("the expression takes too long")

    # Building: each function gets the number of the state that follows, and returns the number of the first state.

    def _add(self, state: _State) -> int:
        if len(self._states) >= _STATES_MAX:
            raise PatternError("the expression is too large")
        self._states.append(state)
        return len(self._states) - 1

    def _build(self, node: Node, following: int) -> int:
        if isinstance(node, OneOf):
            return self._add(_State(takes=node.characters, next=[following]))
        if isinstance(node, Anchor):
            return self._add(_State(anchor=node, next=[following]))
        if isinstance(node, Choice):
            return self._add(_State(next=[self._build(branch, following) for branch in node.branches]))
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                following = self._build(part, following)
            # Even an empty sequence gets a state, so that the limit on states bounds nested repetitions of it.
            return self._add(_State(next=[following]))
        return self._build_repeat(node, following)

    def _build_repeat(self, node: Repeat, following: int) -> int:
        if node.at_most is None:
            loop = self._add(_State(next=[following]))
            self._states[loop].next.append(self._build(node.what, loop))
            following = loop
        else:
            end = following
            for _ in range(node.at_most - node.at_least):
                following = self._add(_State(next=[end, self._build(node.what, following)]))
        for _ in range(node.at_least):
            following = self._build(node.what, following)
        return following
