"""The language of signatures: `running > 0 and median(power_fraction, 10) < low(power_fraction)`.

Numbers, named inputs, + - * /, comparisons, and, or, not, and the functions below. Nothing else: it is parsed, never
run as Python. An input that is not known makes an expression unknown (None), unless the rest decides it: false and
unknown is false, true or unknown is true.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection
from typing import Protocol

Value = float | bool | None
"""None is unknown."""
Asked = Callable[["Figures"], Value]


class Figures(Protocol):
    """What a signature can ask of one server, or of the run."""

    def latest(self, name: str) -> Value:
        """The newest value."""
        ...

    def median(self, name: str, over_s: float) -> Value:
        """The median over the last seconds."""
        ...

    def rate(self, name: str, over_s: float) -> Value:
        """What a counter gained over the last seconds, a second."""
        ...

    def usual(self, name: str, which: str) -> Value:
        """What is normal here: its `low`, `usual` or `high` end, or what would be usual `without_mtp`."""
        ...

    def flag(self, name: str) -> Value:
        """Whether the server was launched with this flag (and not with 0)."""
        ...


class SignatureError(ValueError):
    """An expression that is none, in words."""


_COMPARE: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
OVER = ("median", "rate", "gain")
"""Functions of an input and a number of seconds."""
OF = ("now", "usual", "low", "high", "without_mtp", "known")
"""Functions of an input."""


class Signature:
    """One expression, ready to be asked."""

    def __init__(self, text: str, inputs: Collection[str], window_s: float) -> None:
        """A bare input is its median over the last `window_s` seconds.

        Raises:
            SignatureError: it is not of the language, or names an input that there is not.
        """
        self.text = text
        self.names: set[str] = set()
        """The inputs it asks for."""
        self._inputs, self._window_s = inputs, window_s
        try:
            tree = ast.parse(" ".join(text.split()), mode="eval")
        except (SyntaxError, ValueError) as error:
            raise SignatureError(f"not an expression: {text.strip()}") from error
        self._ask = self._compile(tree.body)

    def ask(self, figures: Figures) -> Value:
        """Its value now."""
        return self._ask(figures)

    def _compile(self, node: ast.expr) -> Asked:
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return lambda _: value
            case ast.Name(id=name):
                name, window_s = self._input(name), self._window_s
                return lambda figures: figures.median(name, window_s)
            case ast.BoolOp(op=op, values=values):
                return _chain([self._compile(each) for each in values], decides=isinstance(op, ast.Or))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._compile(operand)
                return lambda figures: None if (value := inner(figures)) is None else not value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self._compile(operand)
                return lambda figures: None if (value := inner(figures)) is None else -value
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return _two(self._compile(left), self._compile(right), _ARITHMETIC[type(op)])
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                return _two(self._compile(left), self._compile(right), _COMPARE[type(op)])
            case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]):
                return self._call(function, arguments)
            case _:
                raise SignatureError(f"{ast.unparse(node)} is not part of the language of signatures")

    def _call(self, function: str, arguments: list[ast.expr]) -> Asked:
        match arguments:
            case [ast.Constant(value=str() as flag)] if function == "flag":
                return lambda figures: figures.flag(flag)
            case [ast.Name(id=name)] if function in OF:
                name = self._input(name)
                match function:
                    case "now":
                        return lambda figures: figures.latest(name)
                    case "known":
                        return lambda figures: figures.latest(name) is not None
                    case _:
                        return lambda figures: figures.usual(name, function)
            case [ast.Name(id=name), ast.Constant(value=int() | float() as seconds)] if function in OVER:
                name, over_s = self._input(name), float(seconds)
                match function:
                    case "median":
                        return lambda figures: figures.median(name, over_s)
                    case "rate":
                        return lambda figures: figures.rate(name, over_s)
                    case _:
                        return _two(lambda figures: figures.rate(name, over_s), lambda _: over_s, operator.mul)
        shapes = "flag('name'), " + ", ".join([*(f"{each}(input, seconds)" for each in OVER), f"{OF[0]}(input)"])
        raise SignatureError(f"{function}(…) is not one of the functions: {shapes}, {', '.join(OF[1:])}")

    def _input(self, name: str) -> str:
        if name not in self._inputs:
            raise SignatureError(f"there is no input {name}: genmon tells --inputs lists them")
        self.names.add(name)
        return name


def _two(left: Asked, right: Asked, combine: Callable[[float, float], float | bool]) -> Asked:
    def ask(figures: Figures) -> Value:
        first, second = left(figures), right(figures)
        if first is None or second is None:
            return None
        try:
            return combine(first, second)
        except ZeroDivisionError:
            return None

    return ask


def _chain(parts: list[Asked], *, decides: bool) -> Asked:
    """`or` is decided by the first true one, `and` by the first false one; otherwise by what is unknown."""

    def ask(figures: Figures) -> Value:
        result: Value = not decides
        for part in parts:
            value = part(figures)
            if value is None:
                result = None
            elif bool(value) is decides:
                return decides
        return result

    return ask
