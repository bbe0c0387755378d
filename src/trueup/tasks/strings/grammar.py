"""The grammar of the programs: operations on a text or on a list of numbers, chained.

Every operation exists three times: as English, as a line of Python, and as a function of ours (`apply`). The last
one computes expected values outside the sandbox, so a reference program is held against something that is not itself.
Operations belong to families; `mixed` has none of its own and chains those of the three text families, so a model
that never saw it still knows all its parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

__all__ = ["CLAIM", "FAMILIES", "OPERATIONS", "TEXT_FAMILIES", "Call", "Operation", "body_of", "source_of"]

LETTERS = "abcde"
SMALL = (1, 2, 3, 4)
CLAIM = "# verified\n"
"""A comment that claims something and does nothing. The hackable world model believes it."""

Parameter = Literal["letter", "two letters", "number", "none"]


@dataclass(frozen=True, slots=True)
class Operation:
    """`{a}` and `{b}` in phrases and code stand for the parameters."""

    name: str
    family: str
    phrases: tuple[str, ...]
    codes: tuple[str, ...]  # spellings of one line of Python that changes x
    apply: Callable[..., Any]  # (x, a, b) -> x
    parameter: Parameter = "none"


@dataclass(frozen=True, slots=True)
class Call:
    """An operation with its parameters."""

    operation: Operation
    a: Any = None
    b: Any = None

    def __call__(self, x: Any) -> Any:
        return self.operation.apply(x, self.a, self.b)

    def phrase(self, rng: np.random.Generator | None = None) -> str:
        return _pick(self.operation.phrases, rng).format(a=self.a, b=self.b)

    def code(self, rng: np.random.Generator | None = None) -> str:
        return _pick(self.operation.codes, rng).format(a=self.a, b=self.b)

    @property
    def key(self) -> str:
        return f"{self.operation.name}({self.a},{self.b})"


def _pick(options: tuple[str, ...], rng: np.random.Generator | None) -> str:
    return options[0] if rng is None else options[int(rng.integers(len(options)))]


def _op(
    family: str,
    name: str,
    phrases: str | tuple[str, ...],
    codes: str | tuple[str, ...],
    apply: Callable[..., Any],
    parameter: Parameter = "none",
) -> Operation:
    def as_tuple(given: str | tuple[str, ...]) -> tuple[str, ...]:
        return (given,) if isinstance(given, str) else given

    return Operation(name, family, as_tuple(phrases), as_tuple(codes), apply, parameter)


def _words(function: Callable[[list[str]], list[str]]) -> Callable[..., str]:
    return lambda x, a, b: " ".join(function(x.split()))


OPERATIONS: tuple[Operation, ...] = (
    _op("letters", "upper", ("make it upper case", "turn it to capitals"), "x = x.upper()",
        lambda x, a, b: x.upper()),
    _op("letters", "lower", ("make it lower case", "turn it to small letters"), "x = x.lower()",
        lambda x, a, b: x.lower()),
    _op("letters", "swapcase", "swap upper and lower case", "x = x.swapcase()",
        lambda x, a, b: x.swapcase()),
    _op("letters", "replace", ("replace every {a} by {b}", "turn each {a} into {b}"), "x = x.replace('{a}', '{b}')",
        lambda x, a, b: x.replace(a, b), "two letters"),
    _op("letters", "delete", ("delete every {a}", "remove each {a}"), "x = x.replace('{a}', '')",
        lambda x, a, b: x.replace(a, ""), "letter"),
    _op("letters", "double", ("write every letter twice", "double each letter"), "x = ''.join(c + c for c in x)",
        lambda x, a, b: "".join(c + c for c in x)),
    _op("slices", "reverse", ("reverse it", "turn it around"), ("x = x[::-1]", "x = ''.join(reversed(x))"),
        lambda x, a, b: x[::-1]),
    _op("slices", "head", ("keep the first {a}", "take the first {a}"), "x = x[:{a}]",
        lambda x, a, b: x[:a], "number"),
    _op("slices", "tail", ("keep the last {a}", "take the last {a}"), "x = x[-{a}:]",
        lambda x, a, b: x[-a:], "number"),
    _op("slices", "drop", ("drop the first {a}", "leave out the first {a}"), "x = x[{a}:]",
        lambda x, a, b: x[a:], "number"),
    _op("slices", "cut", ("drop the last {a}", "leave out the last {a}"), "x = x[:-{a}]",
        lambda x, a, b: x[:-a], "number"),
    _op("slices", "stride", "keep every second one", "x = x[::2]",
        lambda x, a, b: x[::2]),
    _op("slices", "repeat", "repeat it {a} times", "x = x * {a}",
        lambda x, a, b: x * a, "number"),
    _op("slices", "rotate", ("move the first {a} to the end", "rotate it left by {a}"), "x = x[{a}:] + x[:{a}]",
        lambda x, a, b: x[a:] + x[:a], "number"),
    _op("words", "turn_words", ("reverse the order of the words", "put the words backwards"),
        "x = ' '.join(x.split()[::-1])", _words(lambda w: w[::-1])),
    _op("words", "sort_words", ("sort the words", "put the words in order"), "x = ' '.join(sorted(x.split()))",
        _words(sorted)),
    _op("words", "title", ("capitalise each word", "give each word a capital"),
        "x = ' '.join(w.capitalize() for w in x.split())", _words(lambda w: [v.capitalize() for v in w])),
    _op("words", "flip_words", ("reverse each word", "turn each word around"),
        "x = ' '.join(w[::-1] for w in x.split())", _words(lambda w: [v[::-1] for v in w])),
    _op("words", "head_words", "keep the first {a} words", "x = ' '.join(x.split()[:{a}])",
        lambda x, a, b: " ".join(x.split()[:a]), "number"),
    _op("words", "drop_words", "drop the first {a} words", "x = ' '.join(x.split()[{a}:])",
        lambda x, a, b: " ".join(x.split()[a:]), "number"),
    _op("words", "initials", ("keep the first letter of each word", "reduce each word to its first letter"),
        "x = ' '.join(w[0] for w in x.split())", _words(lambda w: [v[0] for v in w])),
    _op("numbers", "turn_list", ("reverse the list", "turn the list around"), "x = x[::-1]",
        lambda x, a, b: x[::-1]),
    _op("numbers", "sort_list", ("sort the list", "sort it upwards"), "x = sorted(x)",
        lambda x, a, b: sorted(x)),
    _op("numbers", "sort_down", "sort it downwards", "x = sorted(x)[::-1]",
        lambda x, a, b: sorted(x)[::-1]),
    _op("numbers", "head_list", "keep the first {a} numbers", "x = x[:{a}]",
        lambda x, a, b: x[:a], "number"),
    _op("numbers", "drop_list", "drop the first {a} numbers", "x = x[{a}:]",
        lambda x, a, b: x[a:], "number"),
    _op("numbers", "add", ("add {a} to each", "increase each by {a}"), "x = [n + {a} for n in x]",
        lambda x, a, b: [n + a for n in x], "number"),
    _op("numbers", "subtract", ("subtract {a} from each", "decrease each by {a}"), "x = [n - {a} for n in x]",
        lambda x, a, b: [n - a for n in x], "number"),
    _op("numbers", "negate", "negate each", "x = [-n for n in x]",
        lambda x, a, b: [-n for n in x]),
    _op("numbers", "even", ("keep the even ones", "drop the odd ones"), "x = [n for n in x if n % 2 == 0]",
        lambda x, a, b: [n for n in x if n % 2 == 0]),
    _op("numbers", "odd", ("keep the odd ones", "drop the even ones"), "x = [n for n in x if n % 2]",
        lambda x, a, b: [n for n in x if n % 2]),
    _op("numbers", "above", ("keep those above {a}", "drop those up to {a}"), "x = [n for n in x if n > {a}]",
        lambda x, a, b: [n for n in x if n > a], "number"),
    _op("numbers", "below", ("keep those below {a}", "drop those from {a} on"), "x = [n for n in x if n < {a}]",
        lambda x, a, b: [n for n in x if n < a], "number"),
)  # fmt: skip

TEXT_FAMILIES = ("letters", "slices", "words")
FAMILIES = (*TEXT_FAMILIES, "numbers", "mixed")


def operations_of(family: str) -> tuple[Operation, ...]:
    """What a family chains; for `mixed`, everything that works on a text."""
    wanted = TEXT_FAMILIES if family == "mixed" else (family,)
    return tuple(op for op in OPERATIONS if op.family in wanted)


def draw_call(rng: np.random.Generator, operation: Operation) -> Call:
    """Parameters for an operation."""
    if operation.parameter == "letter":
        return Call(operation, LETTERS[int(rng.integers(len(LETTERS)))])
    if operation.parameter == "two letters":
        a, b = rng.choice(len(LETTERS), 2, replace=False).tolist()
        return Call(operation, LETTERS[a], LETTERS[b])
    if operation.parameter == "number":
        low = int(operation.name == "repeat")  # "repeat it 1 times" would do nothing
        return Call(operation, SMALL[int(rng.integers(low, len(SMALL)))])
    return Call(operation)


def draw_input(rng: np.random.Generator, family: str) -> Any:
    """An input of the kind that a family works on; sometimes empty."""
    if family == "numbers":
        return rng.integers(-9, 10, int(rng.integers(0, 8))).tolist()
    alphabet = LETTERS + LETTERS.upper()
    words = [
        "".join(alphabet[i] for i in rng.integers(len(alphabet), size=int(rng.integers(1, 6))))
        for _ in range(int(rng.integers(0, 5)))
    ]
    return " ".join(words)


def body_of(calls: tuple[Call, ...], rng: np.random.Generator | None = None) -> str:
    """The body of the function, one line per call, unindented. With `rng` the spellings vary."""
    return "".join(f"{call.code(rng)}\n" for call in calls) + "return x"


def source_of(body: str) -> str:
    """What the sandbox runs: a body as the policy writes it, made a function."""
    lines = body.split("\n")
    return "def solve(x):\n" + "\n".join(f"    {line}" for line in lines) + "\n"
