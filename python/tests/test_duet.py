"""The package over a built libduet. $DUET_PROGRAM names the program whose answers these are."""

import ctypes
import gc
import json
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest

import duet
from duet import _library

ROOT = Path(__file__).resolve().parents[2]
CHAT = [{"role": "user", "content": "What is rain?"}]


@pytest.fixture(scope="module")
def llm():
    with duet.LLM(batch=3, context=512, threads=1) as pair:
        yield pair


def test_prompts_messages_and_ids_are_answered_as_by_batch(llm):
    prompts = ["The little boat sailed", CHAT, [5, 6, 7], "Once"]
    names = ["prompt", "messages", "prompt_ids", "prompt"]
    lines = "".join(json.dumps({n: p}) + "\n" for n, p in zip(names, prompts))
    program = os.environ.get("DUET_PROGRAM", str(ROOT / "build" / "duet"))
    command = [program, "batch", "--seed", "5", "-n", "20", "--threads", "1", "--ctx", "512"]
    records = subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    answers = llm.generate(prompts, seed=5, max_tokens=20)
    assert len(answers) == 4
    for answer, line in zip(answers, records):
        record = json.loads(line)
        assert (answer.text, answer.ids, answer.finish_reason) == (record["text"], record["ids"], record["finish_reason"])
        for name in ("rounds", "drafted", "accepted", "prompt_tokens", "completion_tokens", "seed"):
            assert getattr(answer.stats, name) == record[name], name
        assert answer.stats.draft_acceptance_rate == pytest.approx(record["draft_acceptance_rate"])


def test_a_stream_gives_the_answer_token_by_token(llm):
    whole = llm.generate([CHAT], seed=3, max_tokens=30)[0]
    with llm.stream(CHAT, seed=3, max_tokens=30) as stream:
        tokens = list(stream)
    assert "".join(t.text for t in tokens) == whole.text == stream.answer.text
    assert [t.id for t in tokens if t.id is not None] == whole.ids
    assert sum(t.drafted for t in tokens) == whole.stats.accepted
    assert stream.answer.finish_reason == whole.finish_reason
    assert list(stream) == []


def test_log_probabilities_and_a_penalty_are_those_of_the_library(llm):
    options = dict(temperature=0, max_tokens=20, ignore_eos=True)
    plain = llm.generate(["Once upon a time"], **options)[0]
    with llm.stream("Once upon a time", logprobs=True, repetition_penalty=1.5, **options) as stream:
        tokens = [t for t in stream if t.id is not None]
    assert [t.id for t in tokens] != plain.ids
    assert all(-20 < t.logprob <= 0 for t in tokens) and any(t.logprob < 0 for t in tokens)


def test_leaving_a_stream_ends_its_answer(llm):
    with llm.stream("The little boat sailed", max_tokens=400, ignore_eos=True) as stream:
        first = next(stream)
    assert stream.answer.finish_reason == "cancelled"
    assert stream.answer.ids[0] == first.id
    assert len(stream.answer.ids) < 400
    forgotten = llm.stream("The little boat sailed", max_tokens=400, ignore_eos=True)
    next(forgotten)
    before = llm.stats.completion_tokens
    del forgotten
    gc.collect()
    assert llm.stats.completion_tokens > before  # it has finished: the pair counts it


def test_streams_of_several_threads_are_what_each_is_alone(llm):
    alone = [llm.generate([CHAT], seed=s, max_tokens=16)[0].text for s in range(4)]
    together = [None] * 4

    def run(s):
        together[s] = "".join(t.text for t in llm.stream(CHAT, seed=s, max_tokens=16))

    threads = [threading.Thread(target=run, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert together == alone


def test_ctrl_c_is_raised_and_the_pair_goes_on(llm):
    with pytest.raises(KeyboardInterrupt):
        for token in llm.stream("The little boat sailed", max_tokens=100, ignore_eos=True):
            os.kill(os.getpid(), signal.SIGINT)
    assert llm.generate([CHAT], seed=3, max_tokens=5)[0].ids


def test_a_stream_that_is_closed_in_a_callback_of_another_is_freed(llm):
    other = llm.stream("Once", stop=["a|", "e|", "y|"], max_tokens=60, temperature=0)
    next(other)

    class Tokens(list):
        def append(self, token):
            other.close()
            super().append(token)

        def popleft(self):
            return self.pop(0)

    stream = llm.stream("The", max_tokens=8, temperature=0, ignore_eos=True)
    stream._tokens = Tokens()
    assert len(list(stream)) == 8 and other._handle is None
    assert llm.generate(["Once"], max_tokens=4)[0].ids


def test_errors_are_exceptions_with_the_sentence_and_the_code(llm):
    with pytest.raises(duet.Error, match="/nowhere") as e:
        duet.LLM("/nowhere")
    assert e.value.code == -2
    with pytest.raises(duet.Error, match="prompt 2: .*context") as e:
        llm.generate(["Once", [1] * 600])
    assert e.value.code == -6
    with pytest.raises(duet.Error, match="role 'nobody'"):
        llm.generate([[{"role": "nobody", "content": "x"}]])
    with pytest.raises(TypeError, match="max_token'"):
        llm.generate(["Once"], max_token=3)
    with pytest.raises(TypeError, match="'temprature'"):
        duet.LLM(temprature=1)
    with pytest.raises(ValueError, match="accept is 'foo', expected one of token, coupled, block"):
        duet.LLM(accept="foo")
    with pytest.raises(TypeError, match="batch: "):
        duet.LLM(batch="many")
    expected = "expected a str, a list of messages or a list of token ids"
    for wrong in (CHAT, [3], [b"abc"], 3 * [None]):
        with pytest.raises(TypeError, match=f"a prompt is a {type(wrong[0]).__name__}, {expected}"):
            llm.generate(wrong)
    with pytest.raises(TypeError, match=f"a prompt is a dict, {expected}"):
        llm.stream(CHAT[0])
    with pytest.raises(TypeError, match="an id of the prompt is a str, expected an int"):
        llm.generate([["Once", "upon"]])
    with pytest.raises(TypeError, match="an id of the prompt is a dict, expected an int"):
        llm.generate([CHAT + [5]])
    with pytest.raises(ValueError, match="a message has no 'content'"):
        llm.generate([[{"role": "user"}]])
    with pytest.raises(TypeError, match="prompts is a dict, expected a list"):
        llm.generate(CHAT[0])
    with pytest.raises(TypeError, match="prompts is a str, expected a list"):
        llm.generate("Hi", max_tokens=1)
    with pytest.raises(ValueError, match="U\\+0000"):
        llm.generate(["a\0b"])
    for wrong in ({"top_k": 2**32 + 1}, {"max_tokens": 2**32 + 3}, {"seed": 2**64 + 5}, {"seed": -1}):
        with pytest.raises(ValueError, match="out of range"):
            llm.generate(["Once"], **wrong)
    with pytest.raises(ValueError, match="an id of the prompt is 4294967301"):
        llm.generate([[2**32 + 5, 6]])
    assert llm.generate([CHAT], seed=3, max_tokens=5)[0].ids


def test_a_closed_pair_says_so_and_its_streams_are_cancelled():
    pair = duet.LLM(k=0, context=256, threads=1)
    assert pair.info["k"] == 0 and pair.info["context"] == 256 and pair.info["proposer"] == ""
    stream = pair.stream("Once", max_tokens=100, ignore_eos=True)
    next(stream)
    pair.close()
    assert stream.answer.finish_reason == "cancelled"
    assert stream.answer.stats.draft_acceptance_rate is None
    with pytest.raises(ValueError, match="closed"):
        pair.generate(["Once"])


def test_versions_agree():
    assert f'version = "{duet.__version__}"' in (ROOT / "python" / "pyproject.toml").read_text()


def test_structs_lie_as_in_the_header(tmp_path):
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("there is no C compiler")
    source = ["#include <stddef.h>", "#include <stdio.h>", '#include "lib/duet.h"', "int main(void) {"]
    expected = []
    for struct in _library.STRUCTS:
        name = f"struct {struct._name_}"
        source.append(f'printf("%zu\\n", sizeof({name}));')
        expected.append(ctypes.sizeof(struct))
        for field, _ in struct._fields_:
            source.append(f'printf("%zu\\n", offsetof({name}, {field}));')
            expected.append(getattr(struct, field).offset)
    (tmp_path / "layout.c").write_text("\n".join(source + ["}"]))
    subprocess.run([compiler, f"-I{ROOT}", str(tmp_path / "layout.c"), "-o", str(tmp_path / "layout")], check=True)
    printed = subprocess.run([str(tmp_path / "layout")], capture_output=True, text=True, check=True).stdout
    assert [int(n) for n in printed.split()] == expected
