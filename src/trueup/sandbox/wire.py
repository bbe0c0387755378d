"""The host's end of the wall: jobs out as bytes, streams of records back in as decided facts."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trueup.errors import ConfigError
from trueup.sandbox.base import CallResult, Limits
from trueup.sandbox.guest import codec

__all__ = ["Call", "Job", "RawRun", "pack_job", "read_calls"]


@dataclass(frozen=True, slots=True)
class Call:
    """Positional and keyword arguments of one call."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """All that the sandbox is told of a run. Expected values have no place here."""

    mode: str  # "calls" or "script"
    source: str
    limits: Limits
    function: str = ""
    calls: tuple[Call, ...] = ()
    stdin: bytes = b""
    artefacts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RawRun:
    """What came out of one run, before anyone has looked at it."""

    ready: bool  # the candidate's first instruction was about to run
    stdout: bytes
    stderr: bytes
    records: bytes  # the record stream after READY
    exit: int | None  # exit status of the candidate, None when a signal ended it
    signal: int | None
    stopped: str | None  # why *we* ended it: "cpu_limit", "timeout", "output_limit"
    cpu_s: float
    wall_s: float
    artefacts: Mapping[str, bytes]
    fault: str = ""  # the machine's fault, in words; empty when the run itself can be judged


def pack_job(job: Job) -> bytes:
    """A job as bytes. Raises `ConfigError` if an input is not plain data."""
    calls = []
    for index, call in enumerate(job.calls):
        try:
            calls.append([codec.dumps(list(call.args)).decode(), codec.dumps(dict(call.kwargs)).decode()])
        except codec.NotPlainError as error:
            raise ConfigError(
                f"inputs must be plain data, got {error.what} in call {index}. It cannot cross into the "
                "sandbox. Use None, bool, int, float, complex, str, bytes, list, tuple, dict and set."
            ) from None
    body = {
        "mode": job.mode,
        "source": job.source,
        "function": job.function,
        "calls": calls,
        "artefacts": list(job.artefacts),
        "limits": asdict(job.limits),
    }
    return json.dumps(body).encode("ascii")


def calls_of(inputs: Sequence[Any]) -> tuple[Call, ...]:
    """Calls from `inputs`: one list or tuple of positional arguments per call, or a `Call`."""
    calls = []
    for index, item in enumerate(inputs):
        if isinstance(item, Call):
            calls.append(item)
        elif isinstance(item, (list, tuple)):
            calls.append(Call(tuple(item), {}))
        else:
            raise ConfigError(
                f"inputs must hold a list of arguments per call, got {type(item).__name__} for call {index}. "
                "A bare value is ambiguous. Wrap it: inputs=[[3], [4]]."
            )
    return tuple(calls)


def split_frames(stream: bytes) -> list[bytes] | None:
    """The frames of a record stream; None if bytes are left that make no frame."""
    frames, at = [], 0
    while at < len(stream):
        if at + 4 > len(stream):
            return None
        (size,) = struct.unpack_from(">I", stream, at)
        at += 4
        if at + size > len(stream):
            return None
        frames.append(stream[at : at + size])
        at += size
    return frames


def read_calls(run: RawRun, n_calls: int) -> tuple[CallResult, ...]:
    """One result per call from a finished run.

    Exactly one record per call, in order, then the end mark. Whatever does not fit that, other than a stream
    cut short by the run's end, was written by the candidate and voids the whole run.
    """
    ended = _why_it_ended(run)
    forged = (CallResult(None, "forged_stream"),) * n_calls
    frames = split_frames(run.records)
    if frames is None:
        if ended == "missing_records":  # it ended by itself, so the runner wrote whole frames
            return forged
        frames = _whole_frames(run.records)
    results: list[CallResult] = []
    for position, frame in enumerate(frames):
        try:
            record = codec.loads(frame)
        except codec.NotPlainError as error:
            if not _looks_like_record(frame, len(results)):
                return forged
            record = [len(results), "bad_type", error.what, ""]
        last = position == len(frames) - 1
        if type(record) is not list or not record:
            return forged
        if record == ["end"] and last and len(results) == n_calls:
            return tuple(results)
        if record[0] == "load":
            if position or not last or not _is_error(record):
                return forged
            reason = "memory" if record[2] == "MemoryError" else record[1]
            return (CallResult(None, reason, f"{record[2]}: {record[3]}"),) * n_calls
        result = _read_record(record, len(results))
        if result is None or len(results) == n_calls:
            return forged
        results.append(result)
    rest = CallResult(None, ended, _tail(run.stderr))
    return tuple(results) + (rest,) * (n_calls - len(results))


def _whole_frames(stream: bytes) -> list[bytes]:
    frames, at = [], 0
    while at + 4 <= len(stream):
        (size,) = struct.unpack_from(">I", stream, at)
        if at + 4 + size > len(stream):
            break
        frames.append(stream[at + 4 : at + 4 + size])
        at += 4 + size
    return frames


def _looks_like_record(frame: bytes, index: int) -> bool:
    """Whether bytes that do not decode are at least a frame for this call, with a value that is too much."""
    return frame.startswith(f'[{index},"ok",'.encode())


def _is_error(record: list[Any]) -> bool:
    return (
        len(record) == 4
        and record[1] in ("load_error", "no_function")
        and type(record[2]) is str
        and type(record[3]) is str
    )


def _read_record(record: list[Any], index: int) -> CallResult | None:
    """The record for call `index`, or None if it is not one."""
    if type(record[0]) is not int or record[0] != index or len(record) < 2:
        return None
    if record[1] == "ok" and len(record) == 3:
        return CallResult(record[2], None)
    if len(record) != 4 or type(record[2]) is not str or type(record[3]) is not str:
        return None
    if record[1] == "bad_type":
        return CallResult(None, "bad_type", record[2])
    if record[1] == "error":
        reason = "memory" if record[2] == "MemoryError" else "exception"
        return CallResult(None, reason, f"{record[2]}: {record[3]}")
    return None


def _why_it_ended(run: RawRun) -> str:
    if run.stopped is not None:
        return run.stopped
    if run.signal is not None:
        return f"signal_{run.signal}"
    return "missing_records"


def _tail(stderr: bytes) -> str:
    return stderr[-300:].decode("utf-8", "replace").strip()
