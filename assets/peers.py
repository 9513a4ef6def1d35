#!/usr/bin/env python3
"""What is installed beside duet, timed on the same shapes. `duet bench peers` starts it: python3 peers.py REQUEST.

REQUEST is a JSON object: device ("cuda", "cpu"), gpu, threads (of the CPU; 0: all), target and draft ({"config": of config.json} for
random weights, or {"directory": of a checkpoint}; draft null: none), batch, ks (above 0), prompt (ids), max_tokens, temperature.

Each line of the output is a JSON object: {"peer", "k", "round_ms", "tokens_per_round"}, {"peer", "skipped": a sentence}, or
{"note": what is being done}. A round gives every row tokens_per_round tokens on average. Nothing is downloaded.

`peers.py --self-check` times tiny models on the CPU, as far as the packages are there.
"""

import json
import os
import sys
import time

EAGER, COMPILED = "PyTorch, eager", "torch.compile, CUDA graphs"
PLAIN, ASSISTED = "transformers, generate", "transformers, assisted"
WARM_UP = 4  # rounds; torch.compile records its graphs in the third


def say(**record):
    print(json.dumps(record), flush=True)


def skip(peer, reason):
    say(peer=peer, skipped=reason)


def first_line(error):
    text = str(error).strip().splitlines()
    return type(error).__name__ + (": " + text[0][:200] if text else "")


def read_config(part):
    if "config" in part:
        return part["config"]
    with open(os.path.join(part["directory"], "config.json"), encoding="utf-8") as f:
        return json.load(f)


# --- a decoder in plain PyTorch: families that are Llama but for biases and norms of heads ---------------------------------------

FAMILIES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}


def make_decoder(torch, config, batch, positions, device, dtype):
    """A module whose call takes tokens [B, 1] and a position [1], and gives logits [B, V]. Weights are random."""
    nn, F = torch.nn, torch.nn.functional
    family = FAMILIES[config["architectures"][0]]
    width, hidden, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    heads, vocab = config["num_attention_heads"], config["vocab_size"]
    kv_heads = config.get("num_key_value_heads") or heads
    dim = config.get("head_dim") or width // heads
    eps = config.get("rms_norm_eps", 1e-6)
    theta = config.get("rope_theta") or (config.get("rope_parameters") or {}).get("rope_theta") or 10000.0
    biased, head_norms = family == "qwen2" or bool(config.get("attention_bias")), family == "qwen3"

    def matrix(*shape):
        return nn.Parameter(torch.empty(shape, device=device, dtype=dtype).normal_(0, 0.02), requires_grad=False)

    def ones(n):
        return nn.Parameter(torch.ones(n, device=device, dtype=dtype), requires_grad=False)

    def norm(x, weight):
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight

    def turn(x, cos, sin):  # [B, H, 1, D]
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat((-high, low), -1) * sin

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_in, self.norm_mlp = ones(width), ones(width)
            self.qkv, self.out = matrix((heads + 2 * kv_heads) * dim, width), matrix(width, heads * dim)
            self.bias = matrix((heads + 2 * kv_heads) * dim) if biased else None
            self.norm_q, self.norm_k = (ones(dim), ones(dim)) if head_norms else (None, None)
            self.gate_up, self.down = matrix(2 * hidden, width), matrix(width, hidden)
            for name in "keys", "values":
                cache = torch.zeros(batch, kv_heads, positions, dim, device=device, dtype=dtype)
                self.register_buffer(name, cache)

        def attend(self, x, position, cos, sin, visible):
            q, k, v = F.linear(x, self.qkv, self.bias).split((heads * dim, kv_heads * dim, kv_heads * dim), -1)
            q, k, v = (y.view(batch, 1, -1, dim).transpose(1, 2) for y in (q, k, v))
            if self.norm_q is not None:
                q, k = norm(q, self.norm_q), norm(k, self.norm_k)
            self.keys.index_copy_(2, position, turn(k, cos, sin))
            self.values.index_copy_(2, position, v)
            q = turn(q, cos, sin).view(batch, kv_heads, heads // kv_heads, dim)
            scores = q @ self.keys.transpose(2, 3) * dim**-0.5
            weights = scores.float().masked_fill(~visible, float("-inf")).softmax(-1).to(dtype)
            return F.linear((weights @ self.values).reshape(batch, 1, heads * dim), self.out)

        def forward(self, x, position, cos, sin, visible):
            x = x + self.attend(norm(x, self.norm_in), position, cos, sin, visible)
            gate, up = F.linear(norm(x, self.norm_mlp), self.gate_up).chunk(2, -1)
            return x + F.linear(F.silu(gate) * up, self.down)

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm = matrix(vocab, width), ones(width)
            self.head = self.embed if config.get("tie_word_embeddings") else matrix(vocab, width)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            turns = theta ** (-torch.arange(0, dim, 2, device=device, dtype=torch.float32) / dim)
            self.register_buffer("turns", torch.cat((turns, turns)))
            self.register_buffer("places", torch.arange(positions, device=device))

        def forward(self, tokens, position):
            x = self.embed[tokens]
            angle = position * self.turns
            cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
            visible = self.places <= position
            for layer in self.layers:
                x = layer(x, position, cos, sin, visible)
            return F.linear(norm(x, self.norm), self.head)[:, -1]

    return Decoder()


def make_step(torch, temperature):
    def step(decoder, tokens, position):
        logits = decoder(tokens, position).float()
        if temperature == 0:
            return logits.argmax(-1, keepdim=True)
        # The race of exponentials draws from the softmax, and waits for nothing.
        return (torch.softmax(logits / temperature, -1) / torch.empty_like(logits).exponential_(1)).argmax(-1, keepdim=True)

    return step


def wait(torch, device):
    if device == "cuda":
        torch.cuda.synchronize()


def time_decoder(torch, request, peer, compiled):
    device, batch = request["device"], request["batch"]
    prompt, rounds = request["prompt"], request["max_tokens"]
    positions = len(prompt) + WARM_UP + rounds + 1
    config = read_config(request["target"])
    if config.get("architectures", [None])[0] not in FAMILIES:
        return skip(peer, "its decoder here knows Llama, Mistral, Qwen 2 and Qwen 3 alone")
    decoder = make_decoder(torch, config, batch, positions, device, torch.bfloat16)
    step = make_step(torch, request["temperature"])
    if compiled:
        step = torch.compile(step, mode="reduce-overhead", fullgraph=True)
    tokens = torch.full((batch, 1), prompt[0], device=device)
    position = torch.zeros(1, dtype=torch.long, device=device)
    start = 0.0
    for i in range(len(prompt) + WARM_UP + rounds):
        if i == len(prompt) + WARM_UP:
            wait(torch, device)
            start = time.perf_counter()
        if compiled:
            torch.compiler.cudagraph_mark_step_begin()
        drawn = step(decoder, tokens, position)
        tokens = torch.full_like(drawn, prompt[i]) if i < len(prompt) else drawn.clone()
        position += 1
    wait(torch, device)
    say(peer=peer, k=0, round_ms=(time.perf_counter() - start) / rounds * 1e3, tokens_per_round=1)


# --- transformers ----------------------------------------------------------------------------------------------------------------


def load_model(torch, transformers, part, device):
    """With its own weights where there are some. No argument names a type, whose name has changed between releases."""
    if "directory" in part:
        return transformers.AutoModelForCausalLM.from_pretrained(part["directory"]).to(device, torch.bfloat16).eval()
    config = dict(part["config"])
    family = config.get("model_type") or FAMILIES.get(config["architectures"][0])
    if not family:
        raise ValueError("no model_type is known for " + config["architectures"][0])
    config.pop("model_type", None)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(family, **config))
    finally:
        torch.set_default_dtype(before)
    return model.to(device, torch.bfloat16).eval()


def set_generation(transformers, model, temperature):
    """Answers of full length: no end id. All filters are off, as they are in duet."""
    given = {"temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature > 0 else {}
    model.generation_config = transformers.GenerationConfig(do_sample=temperature > 0, pad_token_id=0, **given)


def generate(torch, model, request, draft, max_tokens):
    """Times at which rounds began and the last one ended, by the target's calls, of which the first reads the prompt; and tokens."""
    marks = []

    def mark(*_):
        wait(torch, request["device"])
        marks.append(time.perf_counter())

    hook = model.register_forward_pre_hook(mark)
    try:
        ids = torch.tensor([request["prompt"]] * request["batch"], device=request["device"])
        more = {"assistant_model": draft} if draft is not None else {}
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_tokens, **more)
        mark()
    finally:
        hook.remove()
    return marks, out.shape[1] - ids.shape[1]


def time_generate(torch, model, request, draft, peer, k):
    generate(torch, model, request, draft, 2 * (k + 1) + 2)
    marks, tokens = generate(torch, model, request, draft, request["max_tokens"])
    rounds = len(marks) - 1
    if rounds < 2:
        return skip(peer, f"{tokens} tokens took one call alone; give more --max-tokens")
    say(peer=peer, k=k, round_ms=(marks[-1] - marks[1]) / (rounds - 1) * 1e3, tokens_per_round=tokens / rounds)


def time_transformers(torch, request):
    try:
        import transformers
    except ImportError:
        return skip("transformers", "it is not installed for python3")
    transformers.logging.set_verbosity_error()
    target = load_model(torch, transformers, request["target"], request["device"])
    set_generation(transformers, target, request["temperature"])
    say(note=PLAIN)
    time_generate(torch, target, request, None, PLAIN, 0)
    if not request["draft"] or not request["ks"]:
        return skip(ASSISTED, "there is no draft model, or no K above 0")
    if request["batch"] > 1:
        return skip(ASSISTED, "transformers assists one sequence at a time (--batch 1)")
    draft = load_model(torch, transformers, request["draft"], request["device"])
    for k in request["ks"]:
        say(note=f"{ASSISTED}, K = {k}")
        set_generation(transformers, draft, request["temperature"])
        draft.generation_config.num_assistant_tokens = k
        draft.generation_config.num_assistant_tokens_schedule = "constant"
        draft.generation_config.assistant_confidence_threshold = 0.0
        time_generate(torch, target, request, draft, ASSISTED, k)


# --- all of them -----------------------------------------------------------------------------------------------------------------


def attempt(torch, peer, run, *arguments):
    """One that fails does not keep the next from being timed."""
    try:
        run(*arguments)
    except Exception as error:  # whatever a package raises is why it is skipped
        skip(peer, first_line(error))
    if hasattr(torch.compiler, "reset"):
        torch.compiler.reset()  # lets go of what was compiled, and of the graphs' memory
    if torch.cuda.is_available():
        import gc

        gc.collect()
        torch.cuda.empty_cache()


def measure(request):
    try:
        import torch
    except ImportError:
        return skip("PyTorch and transformers", "torch is not installed for python3")
    if request["device"] == "cuda" and not torch.cuda.is_available():
        return skip("PyTorch and transformers", f"torch {torch.__version__} has no CUDA here")
    if request["device"] == "cuda":
        torch.cuda.set_device(request["gpu"])
    elif request["threads"] > 0:
        torch.set_num_threads(request["threads"])
    with torch.no_grad():
        say(note=EAGER)
        attempt(torch, EAGER, time_decoder, torch, request, EAGER, False)
        if request["device"] == "cuda":
            say(note=COMPILED)
            attempt(torch, COMPILED, time_decoder, torch, request, COMPILED, True)
        else:
            skip(COMPILED, "there is no CUDA here")
    attempt(torch, "transformers", time_transformers, torch, request)


def self_check():
    config = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000,
    }
    qwen = {**config, "architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 1, "tie_word_embeddings": True}
    request = {"device": "cpu", "gpu": 0, "threads": 1, "batch": 1, "ks": [1, 3], "prompt": [5, 6, 7], "max_tokens": 24}
    for temperature in 0, 0.7:
        measure({**request, "temperature": temperature, "target": {"config": config}, "draft": {"config": config}})
    measure({**request, "temperature": 0, "batch": 2, "target": {"config": qwen}, "draft": None})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: peers.py REQUEST | --self-check")
    if sys.argv[1] == "--self-check":
        self_check()
    else:
        measure(json.loads(sys.argv[1]))
