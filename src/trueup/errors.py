"""The exception tree and the fault boundary.

    TrueupError
     ├─ ProgrammerError           the caller must change something; always raised, never scored
     │   ├─ ConfigError           a setting is out of its range or two settings contradict (also a ValueError)
     │   ├─ ScorerContractError   a scorer answered with the wrong length, type or range
     │   ├─ GroupError            rollouts or groups that cannot be what they claim (empty, duplicate ids)
     │   ├─ StateError            a saved state that does not fit this object
     │   ├─ DataError             a file or table that cannot be read as what it should be
     │   └─ MissingExtraError     an optional dependency is not installed (also an ImportError)
     └─ InfrastructureError       no answer, and not the policy's fault; becomes an unscored `Score`
         └─ SandboxUnavailable    nothing on this machine can isolate a candidate

Whose fault decides what happens. The *policy's* fault (its program crashes, its plan breaks a rule) is a
real score of 0. The *infrastructure's* fault (a time-out of ours, a dead server) is `Score.unscored(reason)`:
the rollout leaves the update and the reason is kept. The *programmer's* fault raises. An infrastructure fault
scored 0 would teach the policy to avoid whatever the machine happened to be doing when it failed.

Messages follow one form: `<what> must be <rule>, got <value>. <consequence>. <remedy>.`
"""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "DataError",
    "GroupError",
    "InfrastructureError",
    "MissingExtraError",
    "ProgrammerError",
    "SandboxUnavailable",
    "ScorerContractError",
    "StateError",
    "TrueupError",
]


class TrueupError(Exception):
    """Root of every exception that trueup raises on purpose."""


class ProgrammerError(TrueupError):
    """The call cannot be right; nothing was scored and no state changed."""


class ConfigError(ProgrammerError, ValueError):
    """A setting is out of its range, or two settings contradict each other."""


class ScorerContractError(ProgrammerError, ValueError):
    """A scorer answered with the wrong length, the wrong type, or outside its declared range."""


class GroupError(ProgrammerError, ValueError):
    """Rollouts or groups that cannot be what they claim: empty, duplicate ids, an unknown anchor."""


class StateError(ProgrammerError, ValueError):
    """A state that was saved by another version, configuration or class."""


class DataError(ProgrammerError, ValueError):
    """A file or table that cannot be read as what it should be."""


class MissingExtraError(ProgrammerError, ImportError):
    """An optional dependency is not installed; the message has the pip line."""

    def __init__(self, feature: str, extra: str, missing: str) -> None:
        super().__init__(
            f"{feature} needs the package {missing}, which is not installed. "
            f'Install it with: pip install "trueup[{extra}]"'
        )


class InfrastructureError(TrueupError):
    """No answer could be had, and the policy is not to blame. A scorer may raise it to say why.

    `reason` is one of `trueup.types.REASONS`; the fault boundary turns the exception into unscored scores.
    """

    def __init__(self, message: str, reason: str = "scorer_error") -> None:
        super().__init__(message)
        self.reason = reason


class SandboxUnavailable(InfrastructureError):
    """No isolation that could hold a hostile candidate works on this machine."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="sandbox_unavailable")
