"""Judging whole programs: what they printed, and what files they left.

Comparators, by name, of standard output against the expected text:

    exact            the same bytes
    tokens           the same words in the same order, white space aside (the default of programming contests)
    lines            the same lines in the same order, trailing white space and trailing empty lines aside
    unordered_lines  the same lines in any order, likewise
    floats           as `tokens`, and two words that are numbers may differ by the tolerance

A check of the task's own is named as "module:function". It is imported by the judge, is called with what the
program wrote, and answers True, False or a share in [0, 1].
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trueup.errors import ConfigError

__all__ = ["COMPARATORS", "check_reference", "judge_files", "judge_script", "load_check"]


def _exact(expected: str, got: str, rel: float, abs_: float) -> bool:
    return expected == got


def _tokens(expected: str, got: str, rel: float, abs_: float) -> bool:
    return expected.split() == got.split()


def _lines_of(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _lines(expected: str, got: str, rel: float, abs_: float) -> bool:
    return _lines_of(expected) == _lines_of(got)


def _unordered_lines(expected: str, got: str, rel: float, abs_: float) -> bool:
    return sorted(_lines_of(expected)) == sorted(_lines_of(got))


def _floats(expected: str, got: str, rel: float, abs_: float) -> bool:
    wanted, found = expected.split(), got.split()
    return len(wanted) == len(found) and all(
        e == g or _close(e, g, rel, abs_) for e, g in zip(wanted, found, strict=True)
    )


def _close(expected: str, got: str, rel: float, abs_: float) -> bool:
    if len(got) > 400:  # no number needs more; float() of a long word would take its time
        return False
    try:
        e, g = float(expected), float(got)
    except ValueError:
        return False
    return math.isclose(e, g, rel_tol=rel, abs_tol=abs_)


COMPARATORS: Mapping[str, Callable[[str, str, float, float], bool]] = {
    "exact": _exact,
    "tokens": _tokens,
    "lines": _lines,
    "unordered_lines": _unordered_lines,
    "floats": _floats,
}


def check_reference(check: str | Callable[..., Any]) -> str:
    """ "module:function" of a check given by name or as a module-level function, so that the judge, another
    process, can import it."""
    if isinstance(check, str):
        name = check
    else:
        module = getattr(check, "__module__", None)
        qualname = getattr(check, "__qualname__", "<lambda>")
        name = f"{module}:{qualname}"
        if module in (None, "__main__") or "<" in qualname:
            raise ConfigError(
                f"A check must be importable by another process, got {name}. The judge could not find it. "
                "Define it at the top level of a module and pass it, or its name 'module:function'."
            )
    if name.count(":") != 1:
        raise ConfigError(
            f"A check must be named 'module:function', got {name!r}. The judge could not find it. "
            "Write for example 'mytasks.checks:sorted_enough'."
        )
    return name


def load_check(name: str) -> Callable[..., Any]:
    """The function that `check_reference` named, imported here."""
    module, _, qualname = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"The check {name!r} must be importable, got {error}. Nothing was judged. "
            "Make its module importable from where trueup runs."
        ) from None
    if not callable(found):
        raise ConfigError(
            f"The check {name!r} must be a function, got {type(found).__name__}. Name a function."
        )
    check: Callable[..., Any] = found
    return check


def _checked(name: str, *arguments: Any) -> list[Any]:
    """[passed or a share, reason, detail] by a task's own check.

    A check that raises has met something it did not expect from a program of the policy's choice. That must not
    leave the program unscored, or the policy would learn to cause it: it fails, and the reason says so.
    """
    check = load_check(name)
    try:
        answer = check(*arguments)
    except Exception as error:
        return [False, "check_error", f"{type(error).__name__}: {str(error)[:200]}"]
    if isinstance(answer, bool):
        return [answer, None if answer else "check_failed", ""]
    if isinstance(answer, float) and 0.0 <= answer <= 1.0:
        return [answer, None if answer == 1.0 else "check_failed", ""]
    raise ConfigError(
        f"The check {name!r} must answer True, False or a float in [0, 1], got {answer!r}. "
        "It has no agreed meaning as a share. Convert it."
    )


def judge_script(request: Mapping[str, Any]) -> list[Any]:
    """One program run: `stdout`, `ended` (None, or why it was ended), `exit`, `need_exit`, and either
    `expected` with `comparator`, `rel`, `abs`, or `check` with `stdin`."""
    if request["ended"] is not None:
        return [False, request["ended"], ""]
    if request["need_exit"] is not None and request["exit"] != request["need_exit"]:
        return [False, "exit_code", f"exit code {request['exit']}"]
    try:
        text = request["stdout"].decode("utf-8")
    except UnicodeDecodeError:
        return [False, "wrong_value", "standard output is not UTF-8"]
    if request.get("check") is not None:
        return _checked(request["check"], request["stdin"].decode("utf-8", "replace"), text)
    compare = COMPARATORS[request["comparator"]]
    if compare(request["expected"], text, request["rel"], request["abs"]):
        return [True, None, ""]
    return [False, "wrong_value", f"printed {text[:80]!r}"]


def judge_files(request: Mapping[str, Any]) -> list[Any]:
    """Files that a program left, by the task's own check: `files` (name → bytes or absent), `names`, `check`,
    `ended`. The check is called with a dict of name → parsed content (see `artefacts.parse`)."""
    from trueup.sandbox.artefacts import ArtefactError, parse

    if request["ended"] is not None:
        return [False, request["ended"], ""]
    names: Sequence[str] = request["names"]
    parsed = {}
    for name in names:
        if name not in request["files"]:
            return [False, "missing_artefact", f"{name}: not there, not a plain file, or too large"]
        try:
            parsed[name] = parse(name, request["files"][name])
        except ArtefactError as error:
            return [False, "missing_artefact", f"{name}: {error}"]
    return _checked(request["check"], parsed)
