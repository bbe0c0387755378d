"""The host's end of the wall: jobs out as bytes, streams of records back in as decided facts."""

from __future__ import annotations

import base64
import json
import signal
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from trueup.errors import ConfigError
from trueup.sandbox.base import CallResult, Limits
from trueup.sandbox.guest import codec
from trueup.sandbox.guest.runner import READY
from trueup.sandbox.streams import Streams

__all__ = [
    "Call",
    "Job",
    "RawRun",
    "calls_of",
    "job_from_json",
    "job_to_json",
    "outcome",
    "pack_job",
    "read_calls",
    "read_calls_of",
    "run_from_json",
    "run_to_json",
]


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

    @property
    def ended(self) -> str | None:
        """Why it did not end by itself: one of `FAILURES`, `signal_<n>`, or None."""
        return self.stopped or (f"signal_{self.signal}" if self.signal is not None else None)

    @classmethod
    def faulty(cls, fault: str) -> RawRun:
        """No run: the machine failed before the candidate's first instruction, or lost it."""
        return cls(False, b"", b"", b"", None, None, None, 0.0, 0.0, {}, fault=fault)


def outcome(
    streams: Streams,
    job: Job,
    ended: tuple[int | None, int | None],
    stopped: str | None,
    cpu_s: float,
    wall_s: float,
) -> RawRun:
    """A finished run as it can be judged. `ended` is the exit status or the signal that ended it."""
    code, killed = ended
    if streams.records[:1] != READY:
        said = streams.stderr[-300:].decode("utf-8", "replace").strip()
        return RawRun.faulty(f"the worker ended ({code=}, {killed=}) before the candidate started. {said}")
    if streams.overflow:
        stopped = stopped or "output_limit"
    if stopped is None and killed == signal.SIGXCPU:
        stopped = "cpu_limit"
    return RawRun(
        True,
        streams.stdout,
        streams.stderr,
        streams.records[1:],
        None if stopped or killed else code,
        None if stopped else killed,
        stopped,
        cpu_s,
        wall_s,
        streams.artefacts(job.artefacts, job.limits.output_kb * 1024) if job.artefacts else {},
    )


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


def job_to_json(job: Job) -> dict[str, Any]:
    """A job as JSON data for another machine; `job_from_json` reads it there."""
    body: dict[str, Any] = json.loads(pack_job(job))
    return body | {"stdin": base64.b64encode(job.stdin).decode()}


def job_from_json(body: Mapping[str, Any]) -> Job:
    """The job back. Raises `ConfigError` for anything that is not one."""
    try:
        if body["mode"] not in ("calls", "script"):
            raise ValueError(f"mode {body['mode']!r}")
        return Job(
            body["mode"],
            _text(body["source"]),
            Limits(**body["limits"]),
            _text(body["function"]),
            tuple(_call(args, kwargs) for args, kwargs in body["calls"]),
            base64.b64decode(body["stdin"]),
            tuple(_text(name) for name in body["artefacts"]),
        )
    except ConfigError:
        raise
    except (KeyError, TypeError, ValueError, codec.NotPlainError) as error:
        raise ConfigError(
            f"A job must have the form that job_to_json gives it, got {type(error).__name__}: {error}. "
            "It was not run. Use the same version of trueup on both sides."
        ) from None


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{type(value).__name__} where text belongs")
    return value


def _call(args: str, kwargs: str) -> Call:
    positional, named = codec.loads(args.encode()), codec.loads(kwargs.encode())
    if type(positional) is not list or type(named) is not dict:
        raise TypeError("arguments of the wrong type")
    return Call(tuple(positional), named)


_BYTES = ("stdout", "stderr", "records")


def run_to_json(run: RawRun) -> dict[str, Any]:
    """A raw run as JSON data; `run_from_json` reads it."""
    body = {item.name: getattr(run, item.name) for item in fields(run)}
    body |= {name: base64.b64encode(body[name]).decode() for name in _BYTES}
    body["artefacts"] = {k: base64.b64encode(v).decode() for k, v in run.artefacts.items()}
    return body


def run_from_json(body: Mapping[str, Any]) -> RawRun:
    """The raw run back. Raises KeyError, TypeError or ValueError for anything that is not one."""
    known = {item.name: body[item.name] for item in fields(RawRun)}
    known |= {name: base64.b64decode(known[name]) for name in _BYTES}
    known["artefacts"] = {k: base64.b64decode(v) for k, v in known["artefacts"].items()}
    return RawRun(**known)


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
    """One result per call from a finished run (see `read_calls_of`)."""
    return read_calls_of(run.records, run.ended or "missing_records", n_calls)


def read_calls_of(records: bytes, ended: str, n_calls: int) -> tuple[CallResult, ...]:
    """One result per call from a record stream; `ended` is what to say of calls without a record.

    Exactly one record per call, in order, then the end mark. Whatever does not fit that, other than a stream
    cut short by the run's end, was written by the candidate and voids the whole run.
    """
    if ended in ("output_limit", "source_too_large"):  # voids the run: how far it came is a matter of timing
        return (CallResult(None, ended),) * n_calls
    forged = (CallResult(None, "forged_stream"),) * n_calls
    frames = split_frames(records)
    if frames is None:
        if ended == "missing_records":  # it ended by itself, so the runner wrote whole frames
            return forged
        frames = _whole_frames(records)
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
    rest = CallResult(None, ended)
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


_BY_EXCEPTION = {"MemoryError": "memory", "trueup.CallTimeUp": "call_timeout"}


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
        reason = _BY_EXCEPTION.get(record[2], "exception")
        return CallResult(None, reason, f"{record[2]}: {record[3]}")
    return None
