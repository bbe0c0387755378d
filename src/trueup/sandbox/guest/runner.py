"""Run the candidate and say what it returned: one record per call, in order, on descriptor 3.

The stream is one READY byte, then frames of a four-byte length and that many bytes. READY is written just
before the candidate's first instruction, so that a fault before it is the machine's and one after it is the
candidate's. Frames are encoded `[index, "ok", value]` or `[index, "error", type, message]`, then `["end"]`.
"""

from __future__ import annotations

import builtins
import os
import signal
import struct
import sys
import types
from typing import Any

from . import codec

RESULT_FD = 3
READY = b"R"


def emit(record: list[Any]) -> None:
    """Write one frame; a full pipe blocks until the host has read it."""
    body = codec.dumps(record)
    _write(struct.pack(">I", len(body)) + body)


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(RESULT_FD, view) :]


def _error(error: BaseException) -> list[Any]:
    try:
        text = str(error)[:300]
    except BaseException:
        text = ""
    return ["error", type.__repr__(type(error))[8:-2][:80], text if type(text) is str else ""]


class CallTimeUp(BaseException):
    """One call has used up its CPU time. Repeated until the call ends, should it catch this."""

    __module__ = "trueup"


def _call_time_is_up(number: int, frame: object) -> None:
    raise CallTimeUp


def _namespace(name: str) -> dict[str, Any]:
    module = types.ModuleType(name)
    sys.modules[name] = module
    module.__dict__["__builtins__"] = builtins
    return module.__dict__


def run(job: dict[str, Any]) -> int:
    """Run one job (`mode` is `calls` or `script`) to its end and return the exit status."""
    _write(READY)
    if job["mode"] == "script":
        return _run_script(job["source"])
    return _run_calls(job)


def _run_calls(job: dict[str, Any]) -> int:
    names = _namespace("candidate")
    try:
        exec(compile(job["source"], "<candidate>", "exec", dont_inherit=True), names)
        function = names[job["function"]]
        if not callable(function):
            raise TypeError(f"{job['function']} is not callable")
    except BaseException as error:
        missing = type(error) is KeyError and job["function"] not in names
        emit(["load", "no_function" if missing else "load_error", *_error(error)[1:]])
        _finish()
        return 1
    call_cpu_s = job["limits"]["call_cpu_s"]
    if call_cpu_s is not None:
        signal.signal(signal.SIGPROF, _call_time_is_up)
    for index, (args, kwargs) in enumerate(job["calls"]):
        try:
            arguments, keywords = codec.loads(args), codec.loads(kwargs)
            if call_cpu_s is not None:
                signal.setitimer(signal.ITIMER_PROF, call_cpu_s, 0.05)
            try:
                result = function(*arguments, **keywords)
            finally:
                if call_cpu_s is not None:
                    signal.setitimer(signal.ITIMER_PROF, 0)
        except BaseException as error:
            signal.setitimer(signal.ITIMER_PROF, 0)
            emit([index, *_error(error)])
            continue
        try:
            emit([index, "ok", result])
        except codec.NotPlainError as error:
            emit([index, "bad_type", error.what, ""])
        except BaseException as error:
            emit([index, *_error(error)])
    _finish()
    emit(["end"])
    return 0


def _run_script(source: str) -> int:
    names = _namespace("__main__")
    sys.argv = ["candidate.py"]
    code = 0
    try:
        exec(compile(source, "<candidate>", "exec", dont_inherit=True), names)
    except SystemExit as stop:
        code = _exit_code(stop.code)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    _finish()
    emit(["end"])
    return code


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _finish() -> None:
    """What a program may count on at the interpreter's end: threads joined, atexit hooks, flushed output."""
    import atexit

    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # a candidate may have closed or replaced it; the output is then its own loss
            continue
