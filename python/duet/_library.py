"""libduet.so: where it is, and what its header (lib/duet.h) declares."""

import ctypes
import os
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path

SONAME = "libduet.so.0"


class Options(ctypes.Structure):
    _name_ = "duet_options"
    PROGRESS = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_int64, c_int64)
    _fields_ = [
        ("size", c_size_t),
        ("target", c_char_p),
        ("draft", c_char_p),
        ("assets", c_char_p),
        ("chat_template", c_char_p),
        ("device", c_char_p),
        ("gpu", c_int32),
        ("threads", c_int32),
        ("context", c_int32),
        ("batch", c_int32),
        ("k", c_int32),
        ("accept", c_int32),
        ("on_progress", PROGRESS),
        ("user", c_void_p),
        ("date", c_char_p),
        ("reasoning_effort", c_char_p),
    ]


class Info(ctypes.Structure):
    _name_ = "duet_info"
    _fields_ = [
        ("device", c_char_p),
        ("proposer", c_char_p),
        ("device_note", c_char_p),
        ("target_parameters", c_int64),
        ("draft_parameters", c_int64),
        ("context", c_int32),
        ("vocab", c_int32),
        ("k", c_int32),
        ("batch", c_int32),
    ]


class Message(ctypes.Structure):
    _name_ = "duet_message"
    _fields_ = [("role", c_char_p), ("content", c_char_p)]


class Token(ctypes.Structure):
    _name_ = "duet_token"
    _fields_ = [("text", c_void_p), ("size", c_size_t), ("id", c_int32), ("drafted", c_int32), ("logprob", c_float)]


class Request(ctypes.Structure):
    _name_ = "duet_request"
    ON_TOKEN = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Token))
    _fields_ = [
        ("size", c_size_t),
        ("prompt", c_char_p),
        ("messages", POINTER(Message)),
        ("prompt_ids", POINTER(c_int32)),
        ("message_count", c_size_t),
        ("prompt_id_count", c_size_t),
        ("max_tokens", c_int32),
        ("temperature", c_float),
        ("top_p", c_float),
        ("min_p", c_float),
        ("top_k", c_int32),
        ("repetition_penalty", c_float),
        ("logprobs", c_int32),
        ("seed", c_uint64),
        ("has_seed", c_int32),
        ("ignore_eos", c_int32),
        ("think", c_int32),
        ("parse_special", c_int32),
        ("stop", POINTER(c_char_p)),
        ("stop_count", c_size_t),
        ("on_token", ON_TOKEN),
        ("user", c_void_p),
    ]


class StatsStruct(ctypes.Structure):
    _name_ = "duet_stats"
    _fields_ = [
        ("rounds", c_int64),
        ("drafted", c_int64),
        ("accepted", c_int64),
        ("rejected", c_int64),
        ("prompt_tokens", c_int64),
        ("completion_tokens", c_int64),
        ("seed", c_uint64),
        ("first_token_us", c_int64),
        ("duration_us", c_int64),
    ]


STRUCTS = (Options, Info, Message, Token, Request, StatsStruct)

_pair, _answer = c_void_p, c_void_p
_FUNCTIONS = {
    "duet_version": (c_char_p, []),
    "duet_error": (c_char_p, []),
    "duet_record_seed": (c_uint64, [c_uint64, c_uint64]),
    "duet_options_init": (None, [POINTER(Options), c_size_t]),
    "duet_open": (c_int, [POINTER(_pair), POINTER(Options)]),
    "duet_close": (None, [_pair]),
    "duet_get_info": (None, [_pair, POINTER(Info), c_size_t]),
    "duet_get_stats": (None, [_pair, POINTER(StatsStruct), c_size_t]),
    "duet_request_init": (None, [POINTER(Request), c_size_t]),
    "duet_start": (c_int, [_pair, POINTER(Request), POINTER(_answer)]),
    "duet_step": (c_int, [_pair, POINTER(c_int32)]),
    "duet_cancel": (None, [_answer]),
    "duet_answer_free": (None, [_answer]),
    "duet_answer_finish": (c_int, [_answer]),
    "duet_answer_error": (c_char_p, [_answer]),
    "duet_answer_text": (c_void_p, [_answer, POINTER(c_size_t)]),
    "duet_answer_ids": (POINTER(c_int32), [_answer, POINTER(c_size_t)]),
    "duet_answer_stats": (None, [_answer, POINTER(StatsStruct), c_size_t]),
}


def path():
    """Where libduet.so is: $DUET_LIBRARY, the build of the checkout around this file, or what the loader finds by its name."""
    given = os.environ.get("DUET_LIBRARY")
    if given:
        return given
    program = Path(__file__).resolve().parents[2] / "build" / "duet"
    built = program.resolve().with_name("libduet.so")
    if built.exists():
        return str(built)
    for prefix in ("/usr/local", "/usr"):
        installed = Path(prefix) / "lib" / SONAME
        if installed.exists():
            return str(installed)
    return SONAME


def load():
    where = path()
    try:
        library = ctypes.CDLL(where)
    except OSError as e:
        raise ImportError(f"{where}: libduet cannot be loaded ({e}); build it with make, or set DUET_LIBRARY") from None
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
