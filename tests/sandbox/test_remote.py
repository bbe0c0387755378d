"""Workers on other machines: what they see, what overload and failure become, and that nothing is lost."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from trueup.errors import ConfigError, SandboxUnavailable
from trueup.sandbox import Limits, Sandbox, probe

httpx = pytest.importorskip("httpx", reason="needs the extra 'serve'")
pytest.importorskip("fastapi", reason="needs the extra 'serve'")

from trueup.sandbox.remote import RemotePool  # noqa: E402
from trueup.sandbox.server import serve  # noqa: E402

pytestmark = pytest.mark.skipif(not any(r.works for r in probe()), reason="nothing isolates here")
TOKEN = "a-test-token"


def free_port() -> int:
    with socket.socket() as probe_socket:
        probe_socket.bind(("127.0.0.1", 0))
        return probe_socket.getsockname()[1]


@contextlib.contextmanager
def worker(*options: str, token: str | None = TOKEN):
    port = free_port()
    env = {**os.environ, **({"TRUEUP_TOKEN": token} if token else {})}
    command = [
        sys.executable,
        "-m",
        "trueup.cli",
        "serve",
        "sandbox",
        "--port",
        str(port),
        "--slots",
        "1",
        *options,
    ]
    process = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{url}/health").status_code == 200:
                    break
            time.sleep(0.1)
        yield url, process
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def url():
    with worker() as (address, _):
        yield address


def jobs(n: int) -> list[dict]:
    return [
        {"source": f"def solve(x): return x + {i}", "inputs": [[1], [2]], "expected": [1 + i, 2 + i]}
        for i in range(n)
    ]


def test_a_remote_worker_grades_as_a_local_one(url):
    with Sandbox(slots=4, backend="remote", workers=[url], token=TOKEN) as box:
        grades = box.grade_many(jobs(12))
        assert [grade.score.value for grade in grades] == [1.0] * 12
        wrong = box.grade_calls("def solve(x): return x", inputs=[[1]], expected=[2])
        assert (wrong.score.value, wrong.reason, wrong.backend) == (0.0, "wrong_value", "remote")
        script = box.run_script("open('/tmp/a.txt', 'w').write(input())", stdin="hi\n", artefacts=["a.txt"])
        assert script.artefacts == {"a.txt": b"hi"}


def test_overload_means_waiting_and_never_a_zero():
    with worker("--queue", "0") as (address, _):
        with Sandbox(slots=8, backend="remote", workers=[address], token=TOKEN) as box:
            grades = box.grade_many(jobs(40))
            assert [grade.score.value for grade in grades] == [1.0] * 40
        metrics = httpx.get(f"{address}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).text
        refused = [line for line in metrics.splitlines() if line.startswith("trueup_sandbox_refused_total")]
        assert float(refused[0].split()[1]) > 0


def test_the_token_is_required_and_health_is_open(url):
    assert httpx.post(f"{url}/run", json={}).status_code == 401
    assert httpx.post(f"{url}/run", json={}, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert httpx.get(f"{url}/metrics").status_code == 401
    assert httpx.get(f"{url}/health").json()["slots"] == 1
    with (
        Sandbox(backend="remote", workers=[url], token="wrong") as box,
        pytest.raises(ConfigError, match="token"),
    ):
        box.grade_calls("def solve(x): return x", inputs=[[1]], expected=[1])


def test_without_a_token_a_worker_listens_on_loopback_only():
    with Sandbox() as box, pytest.raises(ConfigError, match="token"):
        serve(box, "0.0.0.0", 0, None)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"id": "a", "job": {"mode": "eval"}}', b'{"id": 1, "job": 2}', b"\xff" * 100],
)
def test_requests_that_are_no_jobs_are_refused_without_a_crash(url, body):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert httpx.post(f"{url}/run", content=body, headers=headers).status_code == 422
    assert httpx.get(f"{url}/health").status_code == 200


def test_the_same_id_is_run_once(url):
    from trueup.sandbox.wire import Call, Job, job_to_json

    source = "import time\ndef solve(x):\n    time.sleep(0.3)\n    return time.time()"
    body = {"id": "once", "job": job_to_json(Job("calls", source, Limits(), "solve", (Call((1,), {}),)))}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answers = []

    def ask():
        answers.append(
            httpx.post(f"{url}/run", json=body, headers=headers, timeout=30).json()["run"]["records"]
        )

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ask()
    assert len(answers) == 4
    assert len(set(answers)) == 1


def test_no_expected_value_travels_to_a_worker():
    seen = []

    class Recorder(BaseHTTPRequestHandler):
        def do_GET(self):
            self.reply(b'{"ok": true, "backend": "x", "slots": 1, "in_flight": 0, "places": 1}')

        def do_POST(self):
            seen.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.reply(json.dumps({"run": None, "suspect": True, "unavailable": ""}).encode())

        def reply(self, body):
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with Sandbox(backend="remote", workers=[f"http://127.0.0.1:{server.server_port}"]) as box:
            grade = box.grade_calls("def solve(x): return x", inputs=[[31337]], expected=[271828182])
        assert grade.suspect
        assert b"31337" in seen[0]
        assert b"271828182" not in seen[0]
    finally:
        server.shutdown()
        server.server_close()


def test_a_worker_killed_in_the_middle_loses_nothing_and_pays_nothing():
    with worker() as (first, process), worker() as (second, _):
        with Sandbox(slots=4, backend="remote", workers=[first, second], token=TOKEN) as box:
            source = "import time\ntime.sleep(0.1)\ndef solve(x): return x"
            work = [{"source": source, "inputs": [[i]], "expected": [i % 5]} for i in range(30)]
            timer = threading.Timer(0.6, process.kill)
            timer.start()
            grades = box.grade_many(work)
            timer.join()
        assert [grade.score.value for grade in grades] == [1.0 if i < 5 else 0.0 for i in range(30)]


def test_a_slow_worker_is_hedged():
    with worker() as (fast, _), socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # accepts, and never answers
        pool = RemotePool([f"http://127.0.0.1:{silent.getsockname()[1]}", fast], TOKEN, hedge_s=0.3)
        from trueup.sandbox.wire import Call, Job

        job = Job("calls", "def solve(x): return x", Limits(), "solve", (Call((1,), {}),))
        try:
            runs = [pool.execute(job).run for _ in range(20)]
            assert all(run is not None and b'"ok",1' in run.records for run in runs)
            assert pool.in_flight > 0  # the silent one still has what it was given
        finally:
            pool.close()


def test_where_no_worker_answers_nothing_is_graded():
    nobody = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(SandboxUnavailable, match="No remote worker"):
        Sandbox(backend="remote", workers=[nobody]).start()
    pool = RemotePool([nobody], patience_s=0.5)
    from trueup.sandbox.wire import Job

    ran = pool.execute(Job("script", "print(1)", Limits()))
    pool.close()
    assert ran.run is None
    assert "no worker" in ran.unavailable
