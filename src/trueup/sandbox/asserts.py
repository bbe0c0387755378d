"""Assert-style test files (the shape of HumanEval and MBPP), with the asserts kept outside.

The usual way is to run candidate and asserts in one process. There a candidate that returns an object whose
`__eq__` is always true passes everything. Here the test's code runs in the judge, with a stand-in for the
candidate that answers from a list of results; the sandbox sees only calls and their arguments.

    record   run the test with a stand-in that agrees to everything, and write down the calls it makes
    run      make those calls in the sandbox, all in one run
    replay   run the test again; the stand-in answers with the recorded results, which are plain data

A test whose calls depend on earlier results asks, in its replay, for a call that was not recorded. The answer
then lists the calls up to there and what recording finds beyond, and another round begins. The tests are the
task author's and trusted; their randomness is seeded so that record and replay agree.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trueup.errors import ConfigError
from trueup.sandbox.compare import same
from trueup.sandbox.guest import codec

__all__ = ["record_asserts", "replay_asserts"]

MAX_CALLS = 2_000
_SEED = 20_240


class _NeedCallError(BaseException):
    """The test wants a result that is not there yet; no `except Exception` of the test may swallow it."""


class _FailedCallError(BaseException):
    """The candidate gave no answer to this call (it was stopped, or left): nothing a test may catch."""


class _Agreeable:
    """Stands for any result while recording: equal to everything, true, and itself under any operation."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 1

    def __float__(self) -> float:
        return 0.0

    def __int__(self) -> int:
        return 0

    def __index__(self) -> int:
        return 0

    def __round__(self, digits: int = 0) -> Any:
        return self

    def __contains__(self, item: object) -> bool:
        return True


def _itself(self: _Agreeable, *args: Any) -> Any:
    return self


def _yes(self: _Agreeable, *args: Any) -> bool:
    return True


_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
for _name in (*_ARITHMETIC, *(f"r{name}" for name in _ARITHMETIC), "neg", "pos", "abs", "getitem"):
    setattr(_Agreeable, f"__{_name}__", _itself)
for _name in ("lt", "le", "gt", "ge", "ne", "bool"):
    setattr(_Agreeable, f"__{_name}__", _yes)


class _StandIn:
    """The candidate as the test sees it: known results first, then agreement or a stop."""

    def __init__(self, known: Sequence[Any], calls: Sequence[Any], go_on: bool) -> None:
        self._known = known  # per call ["ok", value], ["error", exception type] or ["failed", reason]
        self._recorded = calls  # the calls that gave those results
        self._go_on = go_on
        self.calls: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        index = len(self.calls)
        if index >= MAX_CALLS:
            raise _NeedCallError
        # a copy by way of the codec: what the test does to its list later must not change the record
        call = codec.loads(codec.dumps([list(args), kwargs]))
        if index < len(self._known) and same(self._recorded[index], call):
            self.calls.append(call)
            kind, value = self._known[index]
            if kind == "ok":
                return codec.loads(codec.dumps(value))
            raise _FailedCallError(value) if kind == "failed" else _exception(value)
        self._known = self._known[:index]  # from here on the record is of another course of the test
        self.calls.append(call)
        if not self._go_on:
            raise _NeedCallError
        return _Agreeable()


def _exception(name: str) -> Exception:
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        return kind("raised by the candidate")
    return RuntimeError(f"the candidate raised {name}")


def _run(block: str, helpers: str, names: Sequence[str], stand_in: Callable[..., Any]) -> None:
    """Execute one block of the test. A block that defines `check` is called with the candidate."""
    space: dict[str, Any] = {"__name__": "test", **dict.fromkeys(names, stand_in), "candidate": stand_in}
    random.seed(_SEED)
    exec(compile(helpers, "<helpers>", "exec", dont_inherit=True), space)
    space.update(dict.fromkeys(names, stand_in))
    exec(compile(block, "<test>", "exec", dont_inherit=True), space)
    if "check" in space and not _calls_check(block):
        space["check"](stand_in)


def _calls_check(block: str) -> bool:
    """Whether the block calls `check` itself, at its top level."""
    return any(
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "check"
        for node in ast.parse(block).body
    )


def record_asserts(request: Mapping[str, Any]) -> list[Any]:
    """Per block of `tests`, the calls it makes as `[args, kwargs]`, as far as agreement leads."""
    return [_record(block, request, [], []) for block in request["tests"]]


def _record(block: str, request: Mapping[str, Any], known: Sequence[Any], calls: Sequence[Any]) -> list[Any]:
    stand_in = _StandIn(known, calls, go_on=True)
    # where agreement leads nowhere, what was recorded so far is a start, and replay asks for more
    with contextlib.suppress(Exception, _NeedCallError, _FailedCallError):
        _run(block, request["helpers"], [request["function"]], stand_in)
    return stand_in.calls


def replay_asserts(request: Mapping[str, Any]) -> list[Any]:
    """Per block, `["done", passed, reason, detail]`, or `["need", calls]` when a call was not recorded.

    `results` and `calls` hold one list per block, call for call.
    """
    answers: list[Any] = []
    for block, known, calls in zip(request["tests"], request["results"], request["calls"], strict=True):
        stand_in = _StandIn(known, calls, go_on=False)
        try:
            _run(block, request["helpers"], [request["function"]], stand_in)
            if not stand_in.calls:
                raise ConfigError(
                    f"A test must call {request['function']!r} or candidate, got one that calls neither: "
                    f"{block[:80]!r}. It would pay every program. Name the function that it tests."
                )
            answers.append(["done", True, None, ""])
        except _NeedCallError:
            answers.append(["need", _record(block, request, known, calls)])
        except _FailedCallError as error:
            answers.append(["done", False, str(error), ""])
        except ConfigError:
            raise
        except Exception as error:
            answers.append(["done", False, "check_failed", f"{type(error).__name__}: {str(error)[:120]}"])
    return answers
