"""Speculative decoding: a small draft model proposes tokens, the target model checks them, the text is the target's own.

    with duet.LLM() as llm:
        print(llm.generate(["The little boat sailed"], max_tokens=32)[0].text)
"""

import ctypes
import operator
import os
import threading
import weakref
from collections import deque
from dataclasses import dataclass
from typing import List, Optional

from . import _library

__all__ = ["LLM", "Stream", "Answer", "Token", "Stats", "Error"]

_lib = _library.load()
__version__ = _lib.duet_version().decode()

_ACCEPT = {"token": 0, "coupled": 1, "block": 2}
_ERR_NUMERIC = -9  # an answer of its own fails for no other reason
_FINISH = {0: None, 1: "stop", 2: "length", 3: "cancelled", 4: "error"}


class Error(Exception):
    """What went wrong, in one sentence. `code` is one of enum duet_status (lib/duet.h)."""

    def __init__(self, sentence, code):
        super().__init__(sentence)
        self.code = code


def _check(code, prefix=""):
    if code != 0:
        raise Error(prefix + _lib.duet_error().decode(), code)


@dataclass(frozen=True)
class Stats:
    rounds: int
    drafted: int
    accepted: int
    rejected: int
    prompt_tokens: int
    completion_tokens: int
    seed: int
    first_token_us: int
    duration_us: int

    @property
    def draft_acceptance_rate(self) -> Optional[float]:
        """accepted / drafted; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def alpha(self) -> Optional[float]:
        """The share of tested proposals that were accepted; None where none was."""
        tested = self.accepted + self.rejected
        return self.accepted / tested if tested else None


@dataclass(frozen=True)
class Token:
    """What one token adds to the text. `id` is None for the last text that was held back, which is no token."""

    text: str
    id: Optional[int]
    drafted: bool
    logprob: float  # where the answer was asked for with logprobs=True; else 0


@dataclass(frozen=True)
class Answer:
    text: str
    ids: List[int]
    finish_reason: Optional[str]  # "stop", "length", "cancelled", "error"
    error: Optional[str]
    stats: Stats


def _read_stats(read, handle):
    stats = _library.StatsStruct()
    read(handle, stats, ctypes.sizeof(stats))
    return Stats(**{name: getattr(stats, name) for name, _ in stats._fields_})


def _read_answer(handle):
    size = ctypes.c_size_t()
    text = ctypes.string_at(_lib.duet_answer_text(handle, size), size.value).decode()
    ids = _lib.duet_answer_ids(handle, size)
    error = _lib.duet_answer_error(handle).decode()
    finish = _FINISH[_lib.duet_answer_finish(handle)]
    return Answer(text, ids[: size.value], finish, error or None, _read_stats(_lib.duet_answer_stats, handle))


def _text(value, what):
    if not isinstance(value, str):
        raise TypeError(f"{what} is a {type(value).__name__}, expected a str")
    if "\0" in value:
        raise ValueError(f"{what} holds U+0000")
    return value.encode()


def _must_hold(kept, given, what):
    """C's integers wrap."""
    if isinstance(kept, int) and kept != given:
        raise ValueError(f"{what} is {given}, which is out of range")


def _set(struct, name, value):
    try:
        setattr(struct, name, value)
    except TypeError as e:
        raise TypeError(f"{name}: {e}") from None
    _must_hold(getattr(struct, name), value, name)


def _member(message, name):
    if name not in message:
        raise ValueError(f"a message has no {name!r}")
    return _text(message[name], f"a {name}")


def _id(value):
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"an id of the prompt is a {type(value).__name__}, expected an int") from None


def _set_prompt(request, prompt):
    if isinstance(prompt, (dict, bytes)) or not hasattr(prompt, "__len__"):
        raise TypeError(
            f"a prompt is a {type(prompt).__name__}, expected a str, a list of messages or a list of token ids"
        )
    if isinstance(prompt, str):
        request.prompt = _text(prompt, "the prompt")
    elif all(isinstance(part, dict) for part in prompt):
        pairs = [(_member(m, "role"), _member(m, "content")) for m in prompt]
        request.messages = (_library.Message * max(len(pairs), 1))(*pairs)
        request.message_count = len(pairs)
    else:
        given = [_id(part) for part in prompt]
        ids = (ctypes.c_int32 * len(given))(*given)
        for kept, each in zip(ids, given):
            _must_hold(kept, each, "an id of the prompt")
        request.prompt_ids, request.prompt_id_count = ids, len(given)


_PARAMETERS = (
    "max_tokens", "temperature", "top_p", "min_p", "top_k", "repetition_penalty", "logprobs", "ignore_eos", "think",
    "parse_special",
)


def _make_request(prompt, record, seed, stop, parameters):
    request = _library.Request()
    _lib.duet_request_init(request, ctypes.sizeof(request))
    _set_prompt(request, prompt)
    for name, value in parameters.items():
        if name not in _PARAMETERS:
            raise TypeError(f"unknown parameter {name!r}; there are seed, stop, {', '.join(_PARAMETERS)}")
        _set(request, name, value)
    if seed is not None:
        _must_hold(ctypes.c_uint64(seed).value, seed, "seed")
        request.has_seed, request.seed = 1, _lib.duet_record_seed(seed, record)
    if stop:
        texts = [_text(s, "stop") for s in ([stop] if isinstance(stop, str) else stop)]
        request.stop, request.stop_count = (ctypes.c_char_p * len(texts))(*texts), len(texts)
    return request


class LLM:
    """A target model and what drafts for it. Threads may share one: calls take turns, and each answer is its own."""

    def __init__(self, target=None, draft=None, *, accept="token", **options):
        """`target` and `draft` are directories, `draft` also "ngram" or "mtp"; neither: the embedded pair. Options: k, batch, context, threads,
        device, gpu, chat_template, date, reasoning_effort, assets, with the defaults of lib/duet.h."""
        self._pair = ctypes.c_void_p()
        self._lock = threading.RLock()
        self._is_stepping = False
        self._pid = os.getpid()
        o = _library.Options()
        _lib.duet_options_init(o, ctypes.sizeof(o))
        if accept not in _ACCEPT:
            raise ValueError(f"accept is {accept!r}, expected one of {', '.join(_ACCEPT)}")
        o.accept = _ACCEPT[accept]
        options.setdefault("assets", os.environ.get("DUET_ASSETS") or None)
        for name, value in {"target": target, "draft": draft, **options}.items():
            if name not in dict(o._fields_) or name in ("size", "on_progress", "user"):
                raise TypeError(f"unknown option {name!r}")
            is_text = isinstance(value, (str, os.PathLike))
            _set(o, name, os.fsencode(value) if is_text else value)
        _check(_lib.duet_open(self._pair, o))

    def close(self):
        """Gives the models' memory back. Streams that still run become cancelled."""
        with self._lock:
            pair, self._pair = self._pair, None
            if pair and self._pid == os.getpid():
                _lib.duet_close(pair)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_pair", None):
            self.close()

    def _handle(self):
        if not self._pair:
            raise ValueError("the LLM is closed")
        if self._pid != os.getpid():
            raise RuntimeError("the LLM belongs to the process that made it: make another after fork()")
        return self._pair

    @property
    def info(self):
        """device, proposer, device_note, target_parameters, draft_parameters, context, vocab, k, batch."""
        with self._lock:
            info = _library.Info()
            _lib.duet_get_info(self._handle(), info, ctypes.sizeof(info))
            values = {name: getattr(info, name) for name, _ in info._fields_}
        return {name: v.decode() if isinstance(v, bytes) else v for name, v in values.items()}

    @property
    def stats(self) -> Stats:
        """Sums over all finished answers."""
        with self._lock:
            return _read_stats(_lib.duet_get_stats, self._handle())

    def _start(self, request, prefix=""):
        answer = ctypes.c_void_p()
        with self._lock:
            _check(_lib.duet_start(self._handle(), request, answer), prefix)
        return answer

    def _step(self):
        running = ctypes.c_int32()
        with self._lock:
            self._is_stepping = True
            try:
                _check(_lib.duet_step(self._handle(), running))
            finally:
                self._is_stepping = False

    def _is_running(self, answer):
        with self._lock:
            return _FINISH[_lib.duet_answer_finish(answer)] is None

    def generate(self, prompts, *, seed=None, stop=None, **parameters) -> List[Answer]:
        """An answer for each prompt, in order. A prompt is a str, a list of {"role", "content"} or a list of token ids. A prompt that
        cannot be asked is an Error, before any is answered; an answer that fails has `error`."""
        if isinstance(prompts, (str, dict, bytes)):  # each letter would be one
            raise TypeError(f"prompts is a {type(prompts).__name__}, expected a list of them")
        requests = [_make_request(p, i + 1, seed, stop, parameters) for i, p in enumerate(prompts)]
        answers = []
        try:
            for i, request in enumerate(requests):
                answers.append(self._start(request, f"prompt {i + 1}: "))
            for answer in answers:
                while self._is_running(answer):
                    self._step()
            return [_read_answer(answer) for answer in answers]
        finally:
            with self._lock:
                for answer in answers:
                    _lib.duet_answer_free(answer)

    def stream(self, prompt, *, seed=None, stop=None, **parameters) -> "Stream":
        """An iterator over the Tokens of one answer, as they are made."""
        return Stream(self, _make_request(prompt, 1, seed, stop, parameters))


class Stream:
    """The Tokens of one answer; `answer` is what there is of it. Leaving a `with`, or close(), ends one that still runs."""

    def __init__(self, llm, request):
        self._llm = llm
        self._tokens = deque()
        self._raised = None
        self._answer = None
        me = weakref.ref(self)  # no cycle: what nobody reads ends at once
        self._callback = request.on_token = _library.Request.ON_TOKEN(lambda _, token: me()._take(token))
        self._handle = llm._start(request)

    def _take(self, token):
        try:
            t = token.contents
            text = ctypes.string_at(t.text, t.size).decode()
            self._tokens.append(Token(text, t.id if t.id >= 0 else None, bool(t.drafted), t.logprob))
            return 0
        except BaseException as e:  # Ctrl-C, perhaps: ctypes would print it and go on
            self._raised = e
            return 1

    def __iter__(self):
        return self

    def __next__(self):
        while not self._tokens:
            if self._raised:
                raised, self._raised = self._raised, None
                raise raised
            if not self._handle or not self._llm._is_running(self._handle):
                break
            self._llm._step()
        if self._tokens:
            return self._tokens.popleft()
        self.close()
        if self._answer.error:
            raise Error(self._answer.error, _ERR_NUMERIC)
        raise StopIteration

    @property
    def answer(self) -> Answer:
        with self._llm._lock:
            return _read_answer(self._handle) if self._handle else self._answer

    def close(self):
        with self._llm._lock:
            if not self._handle:
                return
            try:
                if self._llm._pair and self._llm._is_running(self._handle):
                    _lib.duet_cancel(self._handle)
                    if not self._llm._is_stepping:  # in a callback, perhaps as garbage, it cannot
                        self._llm._step()
                self._answer = _read_answer(self._handle)
            finally:
                _lib.duet_answer_free(self._handle)
                self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()
