"""`trueup serve proxy`: a real process, a real model, a real socket; and the judge in front of it."""

import asyncio
import json
import subprocess
import sys

import pytest

from trueup import Rollout

pytest.importorskip("torch", reason="needs torch and transformers: `make test-train` installs them")
pytest.importorskip("fastapi", reason="needs the extra 'serve'")
httpx = pytest.importorskip("httpx", reason="needs the extra 'judge'")

pytestmark = pytest.mark.filterwarnings("default")

import torch  # noqa: E402
from tokenizers import Regex, Tokenizer, models, pre_tokenizers  # noqa: E402
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM  # noqa: E402

from trueup.scorers.judge import LLMJudge  # noqa: E402
from trueup.scorers.local_chat import LocalChat  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An untrained model whose tokens are single characters, digits among them."""
    path = tmp_path_factory.mktemp("models") / "tiny-judge"
    letters = ["<pad>", "<eos>", *map(chr, range(32, 127)), "\n"]
    raw = Tokenizer(models.WordLevel({c: i for i, c in enumerate(letters)}, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>").save_pretrained(path)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(letters), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=4096, pad_token_id=0, eos_token_id=1, bos_token_id=1,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    digits = [letters.index(c) for c in "0123456789"]
    with torch.no_grad():  # a taste for digits, so that grades get most of the probability
        model.lm_head.weight[digits] += 4 * model.lm_head.weight.std()
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def url(folder):
    command = [sys.executable, "-m", "trueup.cli", "serve", "proxy", "--model", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith("serving tiny-judge at http://127.0.0.1:"), line
        yield line.split(" at ")[1].strip()
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


def ask(url, **body):
    with httpx.Client(
        timeout=120
    ) as client:  # retries while the socket is bound but uvicorn is still starting
        message = [{"role": "user", "content": "hello"}]
        return client.post(
            f"{url}/chat/completions", json={"model": "tiny-judge", "messages": message} | body
        )


def test_the_endpoint_answers_as_the_model_does(url, folder):
    reply = ask(url, max_tokens=5, temperature=0, logprobs=True, top_logprobs=4).json()
    mine = LocalChat(folder).answer([{"role": "user", "content": "hello"}], max_tokens=5, top_logprobs=4)
    choice = reply["choices"][0]
    assert choice["message"]["content"] == mine.text
    assert choice["finish_reason"] == mine.finish_reason
    n = (mine.n_prompt_tokens, len(mine.tokens))
    assert reply["usage"] == {"prompt_tokens": n[0], "completion_tokens": n[1], "total_tokens": sum(n)}
    for theirs, token in zip(choice["logprobs"]["content"], mine.tokens, strict=True):
        assert theirs["logprob"] == pytest.approx(token.logprob, abs=1e-5)
        assert [c["token"] for c in theirs["top_logprobs"]] == [t for t, _ in token.top]
    models = httpx.get(f"{url}/models").json()
    assert [m["id"] for m in models["data"]] == ["tiny-judge"]
    assert httpx.get(url.removesuffix("/v1") + "/health").json()["status"] == "ok"


def test_log_probabilities_are_the_models_own_whatever_the_temperature(folder):
    """Outside truth: one forward pass of transformers."""
    chat = LocalChat(folder)
    reply = chat.answer(
        [{"role": "user", "content": "abc"}], max_tokens=4, temperature=1.7, top_p=0.9, seed=3
    )
    model = Qwen2ForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("abc\n" + reply.text, return_tensors="pt").input_ids
    with torch.no_grad():
        logprobs = torch.log_softmax(model(ids).logits[0], dim=-1)
    n = len(reply.tokens)
    wanted = [float(logprobs[-n - 1 + i, ids[0, -n + i]]) for i in range(n)]
    assert [t.logprob for t in reply.tokens] == pytest.approx(wanted, abs=1e-4)
    again = chat.answer(
        [{"role": "user", "content": "abc"}], max_tokens=4, temperature=1.7, top_p=0.9, seed=3
    )
    assert again == reply


def test_a_stop_string_ends_the_answer_and_is_not_in_it(folder):
    chat = LocalChat(folder)
    message = [{"role": "user", "content": "hello"}]
    whole = chat.answer(message, max_tokens=8).text
    reply = chat.answer(message, max_tokens=8, stop=[whole[2]])
    assert reply.finish_reason == "stop"
    assert reply.text == whole[: whole.index(whole[2])]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"stream": True}, 400, "unsupported"),
        ({"n": 2}, 400, "unsupported"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, 400, "unsupported"),
        ({"model": "gpt"}, 404, "model_not_found"),
        ({"max_tokens": 0}, 400, "invalid_request"),
        ({"messages": [{"role": "user", "content": "x" * 5000}]}, 400, "context_length_exceeded"),
    ],
)
def test_what_it_cannot_do_is_refused_in_the_protocols_form(url, body, status, code):
    reply = ask(url, **body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)


def test_the_judge_takes_an_expected_grade_from_the_local_model(url, folder):
    rollouts = [Rollout("What is 6*7?", text) for text in ("42", "43", "forty-two")]

    async def run():
        judge = LLMJudge(
            base_url=url,
            model="tiny-judge",
            rubric="Is it right?",
            read="logprobs",
            scale=(0, 9),
            min_label_mass=1e-6,
        )
        scores = await judge.score(rollouts)
        await judge.aclose()
        return scores, judge

    scores, judge = asyncio.run(run())
    assert all(score.is_scored and 0 <= score.value <= 1 for score in scores)
    assert len({score.value for score in scores}) == 3  # an expectation, not one of ten grades
    assert judge.usage.answer_tokens == 3
    assert judge.usage.prompt_tokens > 300

    async def in_json():
        judge = LLMJudge(base_url=url, model="tiny-judge", rubric="Is it right?", max_tokens=20)
        scores = await judge.score(rollouts[:1])
        await judge.aclose()
        return scores

    (score,) = asyncio.run(
        in_json()
    )  # an untrained model writes no JSON: no verdict, after the schema was refused
    assert score.reason == "unparsable_verdict"


def test_a_folder_without_a_model_is_one_clear_line(tmp_path):
    command = [sys.executable, "-m", "trueup.cli", "serve", "proxy", "--model", str(tmp_path), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "trueup: The model must be one that transformers can load" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.dumps(str(tmp_path))[1:-1] in done.stderr
