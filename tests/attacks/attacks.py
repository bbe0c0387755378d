"""Programs that want to be paid without solving the task, as data.

The task is `solve(x) -> x * x + 1` on ten inputs. No program here computes that (but for those that say which
`share` they do answer), so whatever they are paid beyond it is stolen. `reasons` are the verdicts that are
right for it; `task="processes"` grants the right to fork, so that process attacks have something to use.
"""

from __future__ import annotations

from dataclasses import dataclass

INPUTS = [[x] for x in range(2, 12)]
EXPECTED = [x * x + 1 for x in range(2, 12)]


@dataclass(frozen=True)
class Attack:
    name: str
    family: str
    source: str
    reasons: frozenset[str]
    share: float = 0.0  # what it answers honestly
    processes: bool = False  # is granted n_processes=8
    slow: bool = False  # uses up its limits


ATTACKS: list[Attack] = []


def attack(name: str, family: str, reasons: str, source: str, **options: object) -> None:
    ATTACKS.append(Attack(name, family, source.strip("\n") + "\n", frozenset(reasons.split()), **options))


# --- leaving early, hoping that a clean exit counts -------------------------------------------------------
attack("os_exit_zero", "exit", "missing_records", "import os\nos._exit(0)")
attack("sys_exit_zero", "exit", "load_error", "import sys\nsys.exit(0)")
attack("exit_in_call", "exit", "exception", "def solve(x):\n    raise SystemExit(0)")
attack("os_exit_in_call", "exit", "missing_records", "import os\ndef solve(x):\n    os._exit(0)")
attack(
    "atexit_exit",
    "exit",
    "wrong_value",
    "import atexit, os\natexit.register(lambda: os._exit(0))\ndef solve(x): return 0",
)
attack("quit_builtin", "exit", "exception", "def solve(x):\n    quit()")
attack("keyboard_interrupt", "exit", "exception", "def solve(x):\n    raise KeyboardInterrupt")
attack(
    "excepthook_exit", "exit", "exception",
    "import sys, os\nsys.excepthook = lambda *a: os._exit(0)\ndef solve(x): raise ValueError",
)  # fmt: skip
attack("exec_true", "exit", "exception", "import os\ndef solve(x):\n    os.execv('/bin/true', ['true'])\n")
attack(
    "exec_python_that_exits", "exit", "missing_records",
    "import os, sys\ndef solve(x):\n    os.execv(sys.executable, [sys.executable, '-c', 'pass'])\n",
    processes=True,
)  # fmt: skip
attack(
    "destructor_exit", "exit", "wrong_value missing_records",
    "import os\nclass D:\n    def __del__(self): os._exit(0)\nd = D()\ndef solve(x): return 0",
)  # fmt: skip

# --- objects that claim to be equal to anything -----------------------------------------------------------
_LIAR = "class Liar{base}:\n    __hash__ = None\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n"
attack("equal_to_all", "equality", "bad_type", _LIAR.format(base="") + "def solve(x): return Liar()")
attack(
    "equal_int_subclass", "equality", "bad_type", _LIAR.format(base="(int)") + "def solve(x): return Liar(1)"
)
attack(
    "equal_str_subclass",
    "equality",
    "bad_type",
    _LIAR.format(base="(str)") + "def solve(x): return Liar('1')",
)
attack(
    "equal_list_subclass", "equality", "bad_type", _LIAR.format(base="(list)") + "def solve(x): return Liar()"
)
attack(
    "equal_float_subclass",
    "equality",
    "bad_type",
    _LIAR.format(base="(float)") + "def solve(x): return Liar(1)",
)
attack(
    "class_property_lies", "equality", "bad_type",
    _LIAR.format(base="") + "    __class__ = property(lambda s: int)\ndef solve(x): return Liar()",
)  # fmt: skip
attack(
    "metaclass_lies", "equality", "bad_type",
    "class M(type):\n    def __eq__(c, o): return True\n    def __hash__(c): return hash(int)\n"
    "    def __instancecheck__(c, i): return True\nclass L(metaclass=M):\n    def __eq__(s, o): return True\n"
    "def solve(x): return L()",
)  # fmt: skip
attack("not_a_number", "equality", "wrong_value", "def solve(x): return float('nan')")
attack("true_for_one", "equality", "wrong_value", "def solve(x): return True")
attack("float_for_int", "equality", "wrong_value", "def solve(x): return float(x * x + 1)")
attack(
    "patched_builtins", "equality", "wrong_value exception forged_stream",
    "import builtins\nbuiltins.all = builtins.any = lambda *a: True\nbuiltins.len = lambda *a: 1\n"
    "builtins.AssertionError = Exception\ndef solve(x): return 0",
)  # fmt: skip
attack(
    "patched_json", "equality", "missing_records exception forged_stream wrong_value",
    "import json\njson.dumps = lambda *a, **k: '[0,\"ok\",true]'\ndef solve(x): return 0",
)  # fmt: skip
attack(
    "patched_codec", "equality", "wrong_value forged_stream",
    "import sys\nfor name, module in list(sys.modules.items()):\n    if name.endswith('codec') and hasattr(module, '_pack'):\n"
    "        module._pack = lambda v, d, n: 'anything'\ndef solve(x): return 0",
)  # fmt: skip

# --- looking for the expected values ----------------------------------------------------------------------
_HUNT = """
def plausible(value):
    return type(value) in (list, tuple) and len(value) == 10 and all(type(v) is int for v in value) and value[0] == 5
"""
attack(
    "frames", "hunt", "wrong_value",
    _HUNT + """
import sys
def solve(x):
    frame = sys._getframe()
    while frame:
        for space in (frame.f_locals, frame.f_globals):
            for key, value in list(space.items()):
                if plausible(value):
                    return value[x - 2]
                if type(value) is str and 'expected' in key:
                    return value
        frame = frame.f_back
    return 0
""",
)  # fmt: skip
attack(
    "garbage_collector", "hunt", "wrong_value",
    _HUNT + "import gc\ndef solve(x):\n    for o in gc.get_objects():\n        if plausible(o): return o[x - 2]\n    return 0",
)  # fmt: skip
attack(
    "bytecode_constants", "hunt", "wrong_value",
    _HUNT + """
import gc, types
def solve(x):
    for o in gc.get_objects():
        code = getattr(o, '__code__', None)
        for const in getattr(code, 'co_consts', ()):
            if plausible(const):
                return const[x - 2]
    return 0
""",
)  # fmt: skip
attack(
    "modules", "hunt", "wrong_value",
    _HUNT + """
import sys
def solve(x):
    for module in list(sys.modules.values()):
        for value in list(getattr(module, '__dict__', {}).values()):
            if plausible(value):
                return value[x - 2]
            if type(value) is dict and 'expected' in value:
                return value['expected'][x - 2]
    return 0
""",
)  # fmt: skip
attack(
    "stack_of_threads", "hunt", "wrong_value",
    "import sys\ndef solve(x):\n    for f in sys._current_frames().values():\n        while f:\n"
    "            if 'expected' in f.f_locals: return f.f_locals['expected'][x - 2]\n            f = f.f_back\n    return 0",
)  # fmt: skip
attack(
    "job_in_memory", "hunt", "wrong_value",
    "import gc\ndef solve(x):\n    for o in gc.get_objects():\n        if type(o) is dict and 'calls' in o and 'source' in o:\n"
    "            return o.get('expected', 0)\n    return 0",
)  # fmt: skip
attack(
    "trace_the_runner", "hunt", "wrong_value cpu_limit",
    "import sys\nseen = []\ndef trace(f, e, a):\n    seen.append(f.f_locals.get('expected'))\n    return trace\n"
    "sys.settrace(trace)\ndef solve(x): return next((s for s in seen if s), 0)",
)  # fmt: skip
attack(
    "main_module", "hunt", "wrong_value exception",
    "import __main__\ndef solve(x): return getattr(__main__, 'expected', [0] * 20)[x - 2]",
)  # fmt: skip

# --- writing verdicts or records themselves ---------------------------------------------------------------
_FRAMES = "import os, struct, json\ndef frame(r):\n    b = json.dumps(r, separators=(',', ':')).encode()\n    return struct.pack('>I', len(b)) + b\n"
attack(
    "extra_record",
    "forge",
    "forged_stream",
    _FRAMES + "def solve(x):\n    os.write(3, frame([x - 2, 'ok', 0]))\n    return 0",
)
attack(
    "all_records_then_exit", "forge", "wrong_value",
    _FRAMES + "os.write(3, b''.join(frame([i, 'ok', 0]) for i in range(10)) + frame(['end']))\nos._exit(0)",
)  # fmt: skip
attack(
    "records_twice", "forge", "forged_stream",
    _FRAMES + "os.write(3, b''.join(frame([i, 'ok', 0]) for i in range(10)) * 2)\nos._exit(0)",
)  # fmt: skip
attack("end_first", "forge", "forged_stream", _FRAMES + "os.write(3, frame(['end']))\ndef solve(x): return 0")
attack(
    "verdict_record",
    "forge",
    "forged_stream",
    _FRAMES + "os.write(3, frame({'passed': True, 'score': 1.0}))\nos._exit(0)",
)
attack(
    "passed_flag_in_record",
    "forge",
    "forged_stream",
    _FRAMES + "os.write(3, frame([0, 'passed', True]))\nos._exit(0)",
)
attack(
    "garbage_records",
    "forge",
    "forged_stream",
    "import os\nos.write(3, os.urandom(4096))\ndef solve(x): return 0",
)
attack(
    "half_a_frame", "forge", "forged_stream", "import os\nos.write(3, b'\\x00\\x00\\xff\\xff[')\nos._exit(0)"
)
attack(
    "huge_frame_length",
    "forge",
    "forged_stream",
    "import os\nos.write(3, b'\\xff\\xff\\xff\\xff')\ndef solve(x): return 0",
)
attack("second_ready", "forge", "forged_stream", "import os\nos.write(3, b'R')\ndef solve(x): return 0")
attack(
    "index_out_of_order", "forge", "forged_stream", _FRAMES + "os.write(3, frame([9, 'ok', 0]))\nos._exit(0)"
)
attack(
    "boolean_index", "forge", "forged_stream", _FRAMES + "os.write(3, frame([False, 'ok', 0]))\nos._exit(0)"
)
attack(
    "passed_on_stdout", "forge", "wrong_value",
    "import sys\nprint('passed'); print('1.0'); print('{\"score\": 1.0}')\nsys.stdout.flush()\ndef solve(x): return 0",
)  # fmt: skip
attack(
    "passed_on_stderr",
    "forge",
    "wrong_value",
    "import sys\nsys.stderr.write('OK\\n10 passed\\n')\ndef solve(x): return 0",
)
attack(
    "write_to_stdin",
    "forge",
    "wrong_value",
    "import os\ntry: os.write(0, b'passed')\nexcept OSError: pass\ndef solve(x): return 0",
)
attack(
    "every_descriptor", "forge", "forged_stream",
    "import os\nfor fd in range(256):\n    try: os.write(fd, b'passed\\n')\n    except OSError: pass\ndef solve(x): return 0",
)  # fmt: skip
attack("close_the_stream", "forge", "missing_records", "import os\nos.close(3)\ndef solve(x): return 0")
attack(
    "stream_to_null",
    "forge",
    "missing_records",
    "import os\nos.dup2(os.open('/dev/null', os.O_RDWR), 3)\ndef solve(x): return 0",
)
attack(
    "thread_writes_later", "forge", "forged_stream wrong_value",
    "import threading, os, time\nthreading.Thread(target=lambda: (time.sleep(.05), os.write(3, b'x' * 64)), daemon=True).start()\n"
    "def solve(x):\n    import time; time.sleep(.01)\n    return 0",
)  # fmt: skip
attack(
    "child_writes_later", "forge", "forged_stream wrong_value",
    "import os, time\nif os.fork() == 0:\n    time.sleep(.01)\n    os.write(3, b'x' * 64)\n    os._exit(0)\ndef solve(x):\n"
    "    time.sleep(.01)\n    return 0",
    processes=True,
)  # fmt: skip

attack(
    "take_ready_back", "forge", "wrong_value forged_stream missing_records",
    "import os, threading\ndef eat():\n    while True:\n        for fd in (1, 2, 3):\n"
    "            try: os.read(os.open(f'/proc/self/fd/{fd}', os.O_RDONLY | os.O_NONBLOCK), 1 << 20)\n"
    "            except OSError: pass\n            try: os.read(fd, 1 << 20)\n            except OSError: pass\n"
    "threading.Thread(target=eat, daemon=True).start()\ndef solve(x): return 0",
)  # fmt: skip
attack(
    "take_ready_back_by_socket", "forge", "wrong_value",
    "import socket\ntry: socket.socket(fileno=3).detach()\nexcept OSError: pass\ntry: socket.fromfd(3, 1, 1).recv(1 << 20, socket.MSG_DONTWAIT)\n"
    "except OSError: pass\ndef solve(x): return 0",
)  # fmt: skip

# --- values that hurt whoever reads them ------------------------------------------------------------------
attack(
    "reduce_runs_code", "serialise", "bad_type",
    "import os\nclass P:\n    def __reduce__(self): return (os.system, ('touch /tmp/pwned',))\ndef solve(x): return P()",
)  # fmt: skip
attack(
    "pickle_bytes", "serialise", "wrong_value",
    "import pickle, os\nclass P:\n    def __reduce__(self): return (os._exit, (0,))\ndef solve(x): return pickle.dumps(P())",
)  # fmt: skip
attack(
    "pickle_on_the_stream", "serialise", "forged_stream",
    "import pickle, os\nclass P:\n    def __reduce__(self): return (os._exit, (0,))\nos.write(3, pickle.dumps(P()))\ndef solve(x): return 0",
)  # fmt: skip
attack(
    "shared_graph_2_60", "serialise", "bad_type memory cpu_limit",
    "def solve(x):\n    a = []\n    for _ in range(60): a = [a, a]\n    return a",
)  # fmt: skip
attack(
    "deep_list",
    "serialise",
    "bad_type",
    "def solve(x):\n    a = []\n    for _ in range(100000): a = [a]\n    return a",
)
attack("cycle", "serialise", "bad_type", "def solve(x):\n    a = []\n    a.append(a)\n    return a")
attack(
    "deep_json_on_the_stream", "serialise", "forged_stream bad_type wrong_value missing_records",
    "import os, struct\nb = b'[0,\"ok\",' + b'[' * 50000 + b']' * 50000 + b']'\nos.write(3, struct.pack('>I', len(b)) + b)\nos._exit(0)",
)  # fmt: skip
attack(
    "integer_of_200k_digits", "serialise", "wrong_value", "def solve(x): return 10 ** 200000 if x == 2 else 0"
)
attack(
    "decimal_integer_on_the_stream", "serialise", "forged_stream bad_type missing_records",
    "import os, struct\nb = b'[0,\"ok\",' + b'9' * 200000 + b']'\nos.write(3, struct.pack('>I', len(b)) + b)\nos._exit(0)",
)  # fmt: skip
attack(
    "hash_collisions", "serialise", "cpu_limit bad_type wrong_value missing_records output_limit",
    "M = (1 << 61) - 1\ndef solve(x): return {i * M: 0 for i in range(1, 6000)} if x == 2 else 0",
)  # fmt: skip
attack(
    "hash_collisions_in_tuples", "serialise", "cpu_limit bad_type wrong_value missing_records output_limit",
    "M = (1 << 61) - 1\ndef solve(x): return {(i * M,) for i in range(1, 6000)} if x == 2 else 0",
)  # fmt: skip
attack("lone_surrogates", "serialise", "wrong_value", "def solve(x): return '\\ud800' * 100")
attack(
    "infinite_str",
    "serialise",
    "bad_type",
    "class S(str):\n    def __len__(s): return 1 << 62\ndef solve(x): return S('x')",
)
attack(
    "hostile_exception", "serialise", "exception missing_records",
    "class E(Exception):\n    def __str__(self): raise E\n    def __repr__(self): raise E\n    @property\n"
    "    def args(self): raise E\ndef solve(x): raise E",
)  # fmt: skip
attack("million_values", "serialise", "bad_type output_limit", "def solve(x): return [0] * 1000000")

# --- reading what is not theirs ---------------------------------------------------------------------------
attack(
    "proc_parent_memory", "read", "wrong_value",
    "import os\ndef solve(x):\n    try: return len(open(f'/proc/{os.getppid()}/mem', 'rb').read(8))\n    except OSError: return 0",
)  # fmt: skip
attack(
    "proc_cmdlines", "read", "wrong_value exception",
    "import os\ndef solve(x):\n    for p in os.listdir('/proc') if os.path.exists('/proc') else []:\n"
    "        if p.isdigit() and p != str(os.getpid()): return open(f'/proc/{p}/cmdline').read()\n    return 0",
)  # fmt: skip
attack(
    "proc_self_mem_write", "read", "wrong_value exception",
    "def solve(x):\n    try: f = open('/proc/self/mem', 'r+b')\n    except OSError: return 0\n    return 0",
)  # fmt: skip
attack(
    "ptrace_parent", "read", "wrong_value",
    "import ctypes, os\ndef solve(x):\n    l = ctypes.CDLL(None)\n    return 0 if l.ptrace(16, os.getppid() or 1, 0, 0) == -1 else 1",
)  # fmt: skip
attack(
    "process_vm_readv", "read", "wrong_value",
    "import ctypes\ndef solve(x):\n    l = ctypes.CDLL(None)\n    return 0 if l.process_vm_readv(1, None, 0, None, 0, 0) == -1 else 1",
)  # fmt: skip
attack(
    "environment", "read", "wrong_value",
    "import os\ndef solve(x):\n    bad = [k for k in os.environ if k not in ('PYTHONHASHSEED', 'LANG', 'HOME', 'PATH', 'PWD', 'LC_CTYPE', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS')]\n"
    "    return bad or 0",
)  # fmt: skip
attack(
    "files_with_answers", "read", "wrong_value",
    "import os\ndef solve(x):\n    for top in ('/workspace', '/home', '/etc', '/mnt', '/srv', '/opt', '/var', '/data'):\n"
    "        try:\n            if os.listdir(top): return [top]\n        except OSError: pass\n    return 0",
)  # fmt: skip
attack(
    "site_packages", "read", "wrong_value",
    "import os, sys\ndef solve(x):\n    for root, dirs, files in os.walk(sys.base_prefix):\n        if root.endswith('site-packages') and (dirs or files): return root\n    return 0",
)  # fmt: skip
attack(
    "etc_shadow",
    "read",
    "wrong_value",
    "def solve(x):\n    try: return open('/etc/shadow').read()\n    except OSError: return 0",
)
attack(
    "open_by_handle", "read", "wrong_value",
    "import ctypes\ndef solve(x):\n    return 0 if ctypes.CDLL(None).syscall(304, 3, b'x' * 64, 0) == -1 else 1",
)  # fmt: skip
attack(
    "kernel_log",
    "read",
    "wrong_value",
    "import ctypes\ndef solve(x):\n    return 0 if ctypes.CDLL(None).klogctl(3, b' ' * 64, 64) == -1 else 1",
)

# --- talking to somebody ----------------------------------------------------------------------------------
_SOCKETS = "import socket\ndef solve(x):\n    for kind in (1, 2, 3):\n        try: socket.socket({family}, kind)\n        except OSError: continue\n        return 1\n    return 0"
for _family in ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_VSOCK", "AF_PACKET", "AF_ALG"):
    attack(f"socket_{_family.lower()}", "network", "wrong_value", _SOCKETS.format(family=f"socket.{_family}"))
attack(
    "io_uring", "network", "wrong_value",
    "import ctypes\ndef solve(x):\n    return 0 if ctypes.CDLL(None).syscall(425, 8, b'\\0' * 120) == -1 else 1",
)  # fmt: skip
attack(
    "abstract_socket", "network", "wrong_value",
    "import socket\ndef solve(x):\n    try:\n        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
    "        a.sendto(b'x', '\\0trueup')\n        return 1\n    except OSError: return 0",
)  # fmt: skip
attack(
    "download_the_answer", "network", "wrong_value",
    "import urllib.request\ndef solve(x):\n    try: return urllib.request.urlopen('http://127.0.0.1:80/', timeout=1).read()\n"
    "    except OSError: return 0",
)  # fmt: skip

# --- leaving something for the next run -------------------------------------------------------------------
attack(
    "leave_files", "persist", "wrong_value",
    "import os\ndef solve(x):\n    for top in ('/tmp', '/', '/dev', '/dev/shm', '/guest', '/var/tmp', '/usr', '/proc', '/root', '/run'):\n"
    "        try:\n            if x == 2 and os.path.exists(top + '/left'): return 'left'\n            open(top + '/left', 'w').write('data')\n"
    "        except OSError: pass\n    return 0",
)  # fmt: skip
attack(
    "shared_memory", "persist", "wrong_value exception",
    "import ctypes\ndef solve(x):\n    l = ctypes.CDLL(None)\n    return 0 if l.shmget(0x7ee, 4096, 0o1666) == -1 else 1",
)  # fmt: skip
attack(
    "message_queue", "persist", "wrong_value",
    "import ctypes\ndef solve(x):\n    return 0 if ctypes.CDLL(None).msgget(0x7ee, 0o1666) == -1 else 1",
)  # fmt: skip
attack(
    "kernel_keyring", "persist", "wrong_value",
    "import ctypes\ndef solve(x):\n    return 0 if ctypes.CDLL(None).syscall(248, b'user', b'k', b'v', 1, -3) == -1 else 1",
)  # fmt: skip
attack(
    "overwrite_the_runner", "persist", "wrong_value",
    "import os\ndef solve(x):\n    for p in ('/guest/box/runner.py', '/guest/box/codec.py'):\n        for act in (lambda: open(p, 'w'), lambda: os.unlink(p), lambda: os.chmod(p, 0o777)):\n"
    "            try: act()\n            except OSError: continue\n            return 1\n    return 0",
)  # fmt: skip
attack(
    "overwrite_the_library", "persist", "wrong_value",
    "import os\ndef solve(x):\n    try: open(os.__file__, 'a').write('#')\n    except OSError: return 0\n    return 1",
)  # fmt: skip
attack(
    "daemon", "persist", "wrong_value missing_records",
    "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        for fd in range(4): os.close(fd)\n        time.sleep(600)\n    os._exit(0)\ndef solve(x): return 0",
    processes=True,
)  # fmt: skip

# --- bombs ------------------------------------------------------------------------------------------------
attack("busy_loop", "bomb", "cpu_limit", "def solve(x):\n    while True: pass", slow=True)
attack("sleep", "bomb", "timeout", "import time\ndef solve(x):\n    time.sleep(3600)", slow=True)
attack(
    "honest_then_loop", "bomb", "cpu_limit",
    "def solve(x):\n    while x == 7: pass\n    return x * x + 1", share=0.5, slow=True,
)  # fmt: skip
attack("fork_denied", "bomb", "exception", "import os\ndef solve(x):\n    while True: os.fork()")
attack(
    "fork_bomb", "bomb", "cpu_limit timeout exception missing_records forged_stream wrong_value",
    "import os\ndef solve(x):\n    while True:\n        try: os.fork()\n        except OSError: pass", processes=True, slow=True,
)  # fmt: skip
attack(
    "thread_bomb", "bomb", "exception memory cpu_limit timeout",
    "import threading, time\ndef solve(x):\n    while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    slow=True,
)  # fmt: skip
attack("memory_at_once", "bomb", "memory", "def solve(x): return len(bytearray(1 << 40))")
attack(
    "memory_slowly",
    "bomb",
    "memory cpu_limit",
    "def solve(x):\n    a = []\n    while True: a.append(bytearray(1 << 20))",
    slow=True,
)
attack(
    "memory_by_mmap", "bomb", "memory cpu_limit exception",
    "import mmap\ndef solve(x):\n    a = []\n    while True:\n        m = mmap.mmap(-1, 1 << 24)\n        m.write(b'x' * (1 << 24))\n        a.append(m)",
    slow=True,
)  # fmt: skip
attack(
    "memory_by_memfd", "bomb", "exception wrong_value",
    "import os\ndef solve(x):\n    fd = os.memfd_create('x')\n    while True: os.write(fd, b'x' * (1 << 20))",
)  # fmt: skip
attack(
    "disk_full", "bomb", "exception",
    "def solve(x):\n    f = open('/tmp/x', 'wb')\n    while True: f.write(b'x' * (1 << 20))",
)  # fmt: skip
attack(
    "inodes",
    "bomb",
    "exception",
    "def solve(x):\n    i = 0\n    while True:\n        open(f'/tmp/{i}', 'w').close()\n        i += 1",
)
attack(
    "sparse_file",
    "bomb",
    "exception signal_25 wrong_value",
    "def solve(x):\n    f = open('/tmp/x', 'wb')\n    f.truncate(1 << 40)\n    return 0",
)
attack("stdout_flood", "bomb", "output_limit", "def solve(x):\n    while True: print('x' * 65536)")
attack(
    "stderr_flood",
    "bomb",
    "output_limit",
    "import os\ndef solve(x):\n    while True: os.write(2, b'x' * 65536)",
)
attack(
    "record_flood",
    "bomb",
    "output_limit",
    "import os\ndef solve(x):\n    while True: os.write(3, b'x' * 65536)",
)
attack("large_answer", "bomb", "output_limit", "def solve(x): return 'x' * (1 << 20)")
attack(
    "descriptors",
    "bomb",
    "exception",
    "def solve(x):\n    a = []\n    while True: a.append(open('/dev/null'))",
)
attack("recursion", "bomb", "exception", "def solve(x): return solve(x)")
attack(
    "c_stack_overflow", "bomb", "signal_11 exception memory",
    "import sys\nsys.setrecursionlimit(10 ** 9)\nclass A:\n    def __repr__(self): return repr(self)\ndef solve(x): return len(repr(A()))",
)  # fmt: skip
attack("long_c_call", "bomb", "cpu_limit", "def solve(x): return 3 ** (10 ** 9) % 7", slow=True)
attack(
    "regex",
    "bomb",
    "cpu_limit",
    "import re\ndef solve(x): return len(re.findall('(a+)+$', 'a' * 40 + 'b'))",
    slow=True,
)
attack("quadratic_sort", "bomb", "cpu_limit memory", "def solve(x): return sum(range(10 ** 11))", slow=True)
attack(
    "zip_bomb",
    "bomb",
    "memory cpu_limit exception",
    "import zlib\ndef solve(x):\n    d = zlib.compress(b'0' * (1 << 26))\n    return len(b''.join(zlib.decompress(d) for _ in range(64)))",
    slow=True,
)
attack("crash", "bomb", "signal_11", "import ctypes\ndef solve(x): return ctypes.string_at(0)")
attack("abort", "bomb", "signal_6 signal_11 signal_4", "import os\ndef solve(x): os.abort()")

attack(
    "tiny_threads", "bomb", "exception memory cpu_limit timeout",
    "import threading, time\nthreading.stack_size(32768)\ndef solve(x):\n    while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    slow=True,
)  # fmt: skip

# --- signals and limits -----------------------------------------------------------------------------------
attack(
    "ignore_all_signals", "signals", "cpu_limit",
    "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
    "def solve(x):\n    while True: pass", slow=True,
)  # fmt: skip
attack(
    "kill_everyone",
    "signals",
    "wrong_value missing_records exception",
    "import os\ndef solve(x):\n    os.kill(-1, 9)\n    return 0",
)
attack(
    "kill_parent",
    "signals",
    "wrong_value exception",
    "import os\ndef solve(x):\n    try: os.kill(os.getppid(), 9)\n    except OSError: pass\n    return 0",
)
attack(
    "kill_self",
    "signals",
    "wrong_value exception signal_9 suspect",
    "import os\ndef solve(x):\n    os.kill(os.getpid(), 9)\n    return 0",
)
attack(
    "stop_self",
    "signals",
    "wrong_value exception timeout",
    "import os\ndef solve(x):\n    os.kill(os.getpid(), 19)\n    return 0",
    slow=True,
)
attack(
    "raise_limits", "signals", "wrong_value",
    "import resource as r\ndef solve(x):\n    for n in (r.RLIMIT_CPU, r.RLIMIT_AS, r.RLIMIT_NOFILE, r.RLIMIT_FSIZE, r.RLIMIT_CORE):\n"
    "        try: r.setrlimit(n, (r.RLIM_INFINITY, r.RLIM_INFINITY))\n        except (ValueError, OSError): continue\n        return 1\n    return 0",
)  # fmt: skip
attack(
    "limits_of_others", "signals", "wrong_value exception",
    "import resource as r, os\ndef solve(x):\n    try: r.prlimit(os.getppid() or 2, r.RLIMIT_CPU, (0, 0))\n    except OSError: return 0\n    return 0",
)  # fmt: skip
attack(
    "nice",
    "signals",
    "wrong_value",
    "import os\ndef solve(x):\n    try: os.nice(-5)\n    except OSError: return 0\n    return 1",
)
attack(
    "reset_cpu_timer",
    "signals",
    "cpu_limit",
    "import signal\ndef solve(x):\n    while True: signal.setitimer(signal.ITIMER_PROF, 0)",
    slow=True,
)

# --- the walls themselves ---------------------------------------------------------------------------------
_CALL = "import ctypes\ndef solve(x):\n    l = ctypes.CDLL(None, use_errno=True)\n    return 0 if {call} == -1 else 1"
for _name, _call in {
    "unshare_user": "l.unshare(0x10000000)",
    "unshare_mount": "l.unshare(0x20000)",
    "setns": "l.setns(0, 0)",
    "mount_tmpfs": "l.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None)",
    "mount_proc": "l.mount(b'proc', b'/tmp', b'proc', 0, None)",
    "remount_writable": "l.mount(None, b'/', None, 32 | 4096, None)",
    "umount_tmp": "l.umount2(b'/tmp', 2)",
    "pivot_root": "l.syscall(155, b'/tmp', b'/tmp')",
    "chroot": "l.chroot(b'/tmp')",
    "setuid_root": "l.setuid(0)",
    "setresuid_root": "l.setresuid(0, 0, 0)",
    "setgroups": "l.setgroups(0, None)",
    "become_dumpable": "l.prctl(4, 1, 0, 0, 0)",
    "another_seccomp": "l.prctl(22, 1, 0, 0, 0)",
    "clone3": "l.syscall(435, b'\\0' * 88, 88)",
    "clone_newuser": "l.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)",
    "bpf": "l.syscall(321, 0, b'\\0' * 64, 64)",
    "perf_event": "l.syscall(298, b'\\0' * 128, 0, -1, -1, 0)",
    "userfaultfd": "l.syscall(323, 0)",
    "keyctl": "l.syscall(250, 0, -3, 0)",
    "load_module": "l.syscall(175, 0, 0, b'')",
    "reboot": "l.reboot(0)",
    "hostname": "l.sethostname(b'x', 1)",
    "personality": "l.personality(0x40000)",
    "x32_getpid": "l.syscall(0x40000000 + 39)",
    "tty_injection": "l.ioctl(0, 0x5412, b'x')",
    "tty_injection_high_bit": "l.ioctl(0, ctypes.c_ulong(0x100005412), b'x')",
}.items():
    _reasons = "signal_31" if _name == "x32_getpid" else "wrong_value"
    attack(_name, "walls", _reasons, _CALL.format(call=_call))
attack(
    "int_0x80", "walls", "signal_31 signal_11",
    "import ctypes, mmap\ndef solve(x):\n    m = mmap.mmap(-1, 4096, prot=7)\n    m.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')\n"
    "    f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\n    return 1 if f() else 0",
)  # fmt: skip
attack(
    "device_node", "walls", "wrong_value",
    "import os, stat\ndef solve(x):\n    try: os.mknod('/tmp/sda', 0o600 | stat.S_IFBLK, os.makedev(8, 0))\n    except OSError: return 0\n    return 1",
)  # fmt: skip
attack(
    "chmod_null", "walls", "wrong_value",
    "import os\ndef solve(x):\n    for p in ('/dev/null', '/dev/zero', '/'):\n        try: os.chmod(p, 0o600)\n        except OSError: continue\n        return 1\n    return 0",
)  # fmt: skip
attack(
    "symlink_out", "walls", "wrong_value",
    "import os\ndef solve(x):\n    try:\n        os.symlink('/proc/1/root/etc/passwd', f'/tmp/l{x}')\n        return open(f'/tmp/l{x}').read()\n    except OSError: return 0",
)  # fmt: skip
attack(
    "setuid_binary", "walls", "wrong_value",
    "import os, sys, shutil\ndef solve(x):\n    p = f'/tmp/python{x}'\n    try:\n        shutil.copy(sys.executable, p)\n        os.chmod(p, 0o6755)\n"
    "    except OSError: return 0\n    return 1 if os.spawnv(os.P_WAIT, p, [p, '-c', 'import os; raise SystemExit(os.geteuid() == 0)']) == 1 else 0",
    processes=True,
)  # fmt: skip

# --- sources that hurt whoever loads them -----------------------------------------------------------------
attack("nul_bytes", "source", "load_error", "def solve(x):\n    return 0\n\0")
attack("surrogates", "source", "load_error", "def solve(x):\n    return '\ud800'\n")
attack("not_python", "source", "load_error", "#include <stdio.h>\nint main() { return 0; }")
attack("no_function", "source", "no_function", "answer = 42")
attack("function_is_a_number", "source", "load_error", "solve = 42")
attack("huge_source", "source", "source_too_large", "#" * (2 << 20))
attack(
    "deep_source",
    "source",
    "load_error missing_records signal_11 memory",
    "solve = " + "(" * 5000 + ")" * 5000,
)
attack("long_expression", "source", "load_error signal_11 memory cpu_limit", "solve = " + "1+" * 100000 + "1")
attack(
    "constant_folding",
    "source",
    "load_error no_function cpu_limit memory",
    "solve = ((2 ** 100000) ** 100000) ** 100000",
    slow=True,
)
attack(
    "encoding_cookie",
    "source",
    "load_error no_function",
    "# -*- coding: utf-7 -*-\n+AGQAZQBm- solve(x): return 0\n",
)
