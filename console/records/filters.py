"""Filter expressions over records, such as `value["user"] == "alice" and partition in [0, 1]`.

The syntax is Python's, read by `ast`; the meaning is given here alone. An expression becomes a tree of small functions,
so nothing of it is ever executed by Python itself. There are no loops and no calls but the few below, so the work for a
record is bounded by the length of the expression and the size of the record.

    names      key, value, headers, topic, partition, offset, timestamp
    paths      value["user"]["id"] or value.user.id, value["items"][0]; what is missing is None
    operators  == != < <= > >=  in  not in  is None  and or not  + - * / %
    functions  len(x)  lower(x)  upper(x)  text(x)  number(x)  starts(x, "a")  ends(x, "z")  like(x, "a*z")
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

LENGTH_MAX: Final = 2_000
_NODES_MAX: Final = 300
_DEPTH_MAX: Final = 40
_NUMBER_MAX: Final = 2**63
_LIKE_MAX: Final = 64 * 1024
NAMES: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
_CONSTANTS: Final[Mapping[str, object]] = {"true": True, "false": False, "null": None}

Fields = Mapping[str, Any]
Evaluate = Callable[[Fields], Any]


class FilterError(ValueError):
    """An expression that cannot be used; the text says why, and `position` where."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message if position is None else f"{message} (at character {position + 1})")
        self.position = position


class Filter:
    """A compiled expression; `names` are the fields of a record that it looks at."""

    def __init__(self, text: str) -> None:
        """Compile an expression; FilterError if it is not one."""
        if len(text) > LENGTH_MAX:
            raise FilterError(f"a filter has at most {LENGTH_MAX} characters")
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except SyntaxError as error:
            raise FilterError(f"not an expression: {error.msg}", (error.offset or 1) - 1) from None
        except (ValueError, RecursionError, MemoryError):
            raise FilterError("not an expression") from None
        compiler = _Compiler()
        self._evaluate = compiler.compiled(tree.body, 0)
        self.names = frozenset(compiler.names)
        self.text = text

    def matches(self, fields: Fields) -> bool:
        """Whether a record matches. What cannot be compared does not match; it is never an error."""
        return bool(self._evaluate(fields))


class _Compiler:
    """Turns the nodes of an expression into functions."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._nodes = 0

    def compiled(self, node: ast.expr, depth: int) -> Evaluate:
        """Return the function of a node; FilterError for a kind of node that is not allowed."""
        self._nodes += 1
        if self._nodes > _NODES_MAX or depth > _DEPTH_MAX:
            raise FilterError("the filter is too long or too deep")
        deeper = depth + 1
        match node:
            case ast.Constant(value=None | bool() | int() | float() | str() as constant):
                if isinstance(constant, int) and abs(constant) > _NUMBER_MAX:
                    raise FilterError("the number is too large", node.col_offset)
                return lambda fields: constant
            case ast.Name(id=name):
                return self._named(name, node.col_offset)
            case ast.Subscript(value=inner, slice=index):
                return _item(self.compiled(inner, deeper), self.compiled(index, deeper))
            case ast.Attribute(value=inner, attr=name):
                # Only a shorter way to write a key: no attribute of an object is ever read.
                return _item(self.compiled(inner, deeper), lambda fields: name)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                functions = [self.compiled(part, deeper) for part in parts]
                return lambda fields: [function(fields) for function in functions]
            case ast.BoolOp(op=ast.And(), values=parts):
                functions = [self.compiled(part, deeper) for part in parts]
                return lambda fields: all(function(fields) for function in functions)
            case ast.BoolOp(op=ast.Or(), values=parts):
                functions = [self.compiled(part, deeper) for part in parts]
                return lambda fields: any(function(fields) for function in functions)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                function = self.compiled(inner, deeper)
                return lambda fields: not function(fields)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return _arithmetic(operator.sub, lambda fields: 0, self.compiled(inner, deeper))
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _ARITHMETIC:
                return _arithmetic(_ARITHMETIC[type(sign)], self.compiled(left, deeper), self.compiled(right, deeper))
            case ast.Compare(left=left, ops=signs, comparators=rights):
                return self._comparison(node, left, signs, rights, deeper)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
                count, function = _FUNCTIONS[name]
                if len(arguments) != count or any(isinstance(each, ast.Starred) for each in arguments):
                    raise FilterError(f"{name} takes {count} argument{'s' if count > 1 else ''}", node.col_offset)
                functions = [self.compiled(each, deeper) for each in arguments]
                return lambda fields: function(*(argument(fields) for argument in functions))
            case ast.Call():
                raise FilterError(f"there are the functions {', '.join(_FUNCTIONS)}", node.col_offset)
        raise FilterError(f"{type(node).__name__} is not part of filters", getattr(node, "col_offset", None))

    def _named(self, name: str, position: int) -> Evaluate:
        if name in _CONSTANTS:
            constant = _CONSTANTS[name]
            return lambda fields: constant
        if name not in NAMES:
            raise FilterError(f"there is no {name}; there are {', '.join(NAMES)}", position)
        self.names.add(name)
        return lambda fields: fields.get(name)

    def _comparison(
        self, node: ast.expr, left: ast.expr, signs: list[ast.cmpop], rights: list[ast.expr], depth: int
    ) -> Evaluate:
        for sign in signs:
            if type(sign) not in _COMPARISONS:
                raise FilterError(f"{type(sign).__name__} is not part of filters", node.col_offset)
        compare = [_COMPARISONS[type(sign)] for sign in signs]
        parts = [self.compiled(part, depth) for part in (left, *rights)]

        def evaluate(fields: Fields) -> bool:
            values = [part(fields) for part in parts]
            return all(one(before, after) for one, before, after in zip(compare, values[:-1], values[1:], strict=True))

        return evaluate


def _item(inner: Evaluate, index: Evaluate) -> Evaluate:
    def evaluate(fields: Fields) -> Any:
        value, key = inner(fields), index(fields)
        if isinstance(value, Mapping):
            return value.get(key) if isinstance(key, str | int) else None
        if isinstance(value, list | str) and isinstance(key, int) and not isinstance(key, bool):
            return value[key] if -len(value) <= key < len(value) else None
        return None

    return evaluate


def _arithmetic(function: Callable[[Any, Any], Any], left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(fields: Fields) -> Any:
        a, b = left(fields), right(fields)
        if not (_is_number(a) and _is_number(b)):
            return None
        try:
            return function(a, b)
        except (ZeroDivisionError, OverflowError):
            return None

    return evaluate


def _is_number(value: object) -> bool:
    # Products of numbers in this range stay small.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _NUMBER_MAX


def _ordered(function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(left: Any, right: Any) -> bool:
        if isinstance(left, str) and isinstance(right, str):
            return function(left, right)
        both = isinstance(left, int | float) and isinstance(right, int | float)
        return both and function(left, right)

    return compare


def _is_in(left: Any, right: Any) -> bool:
    if isinstance(right, str):
        return isinstance(left, str) and left in right
    if isinstance(right, list):
        return left in right
    if isinstance(right, Mapping):
        return isinstance(left, str | int) and left in right
    return False


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)[:LENGTH_MAX]


def _number(value: Any) -> float | int | None:
    if isinstance(value, int | float):
        return value
    try:
        number = float(value) if isinstance(value, str) and len(value) < 64 else None
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) else None


def like(text: Any, pattern: Any) -> bool:
    """Whether a text matches a pattern with * and ?. The parts between stars are looked for from left to right, once.

    Only the first 64 Ki characters of a long text are looked at.
    """
    if not isinstance(text, str) or not isinstance(pattern, str):
        return False
    text = text[:_LIKE_MAX]
    first, *parts = [_part(each) for each in pattern.split("*")]
    found = first.match(text)
    if found is None:
        return False
    if not parts:
        return found.end() == len(text)
    position = found.end()
    for part in parts[:-1]:
        found = part.search(text, position)
        if found is None:
            return False
        position = found.end()
    start = len(text) - len(pattern.rpartition("*")[2])
    return start >= position and parts[-1].match(text, start) is not None


@lru_cache(maxsize=64)
def _part(text: str) -> re.Pattern[str]:
    """Return a pattern of fixed length: without repetition, it cannot take long."""
    return re.compile("".join("." if each == "?" else re.escape(each) for each in text), re.DOTALL)


_ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
    ast.In: _is_in,
    ast.NotIn: lambda left, right: not _is_in(left, right),
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
}
_FUNCTIONS: Final[Mapping[str, tuple[int, Callable[..., Any]]]] = {
    "len": (1, lambda value: len(value) if isinstance(value, str | list | Mapping) else None),
    "lower": (1, lambda value: value.lower() if isinstance(value, str) else None),
    "upper": (1, lambda value: value.upper() if isinstance(value, str) else None),
    "text": (1, _text),
    "number": (1, _number),
    "starts": (2, lambda value, part: isinstance(value, str) and isinstance(part, str) and value.startswith(part)),
    "ends": (2, lambda value, part: isinstance(value, str) and isinstance(part, str) and value.endswith(part)),
    "like": (2, like),
}
