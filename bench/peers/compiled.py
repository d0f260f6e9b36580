#!/usr/bin/env python3
"""A token of Llama 3.1 8B's shape by torch.compile, as PyTorch's own examples decode fast: a static cache, one graph, random weights.

    python3 bench/peers/compiled.py [--layers 2,6] [--of 32] [--context 1000] [--device cuda] [--dtype bfloat16]

Compiling all layers takes minutes. So models of two depths are compiled and timed; the difference is a layer, the rest what surrounds
them, and --of layers are reckoned from both. Prints a line of JSON, milliseconds. Exits with 77 where torch or the device is missing.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

HERE = str(pathlib.Path(__file__).resolve().parent)
sys.path = [place for place in sys.path if str(pathlib.Path(place).resolve()) != HERE]  # transformers.py there is no library

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing}; see bench/peers/requirements.txt")
    sys.exit(77)

F = torch.nn.functional


def numbers(text):
    return [int(part) for part in text.split(",")]


class Layer(torch.nn.Module):
    def __init__(self, sizes, context):
        super().__init__()
        hidden, inner, self.heads, self.kv_heads, self.dim, _ = sizes
        self.qkv = torch.nn.Linear(hidden, (self.heads + 2 * self.kv_heads) * self.dim, bias=False)
        self.out = torch.nn.Linear(self.heads * self.dim, hidden, bias=False)
        self.wide = torch.nn.Linear(hidden, 2 * inner, bias=False)
        self.down = torch.nn.Linear(inner, hidden, bias=False)
        self.norms = torch.nn.ModuleList([torch.nn.RMSNorm(hidden), torch.nn.RMSNorm(hidden)])
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, self.kv_heads, context, self.dim))

    def turned(self, x, cosine, sine):
        first, second = x.chunk(2, dim=-1)
        return x * cosine + torch.cat((-second, first), dim=-1) * sine

    def forward(self, x, place, mask, cosine, sine):
        parts = self.qkv(self.norms[0](x)).view(1, 1, -1, self.dim).transpose(1, 2)
        query, key, value = parts.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        self.keys.index_copy_(2, place, self.turned(key, cosine, sine))
        self.values.index_copy_(2, place, value)
        attended = F.scaled_dot_product_attention(self.turned(query, cosine, sine), self.keys, self.values, attn_mask=mask, enable_gqa=True)
        x = x + self.out(attended.transpose(1, 2).reshape(1, 1, -1))
        gate, up = self.wide(self.norms[1](x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Model(torch.nn.Module):
    def __init__(self, sizes, layers, context):
        super().__init__()
        hidden, dim, vocab = sizes[0], sizes[4], sizes[5]
        self.embedding = torch.nn.Embedding(vocab, hidden)
        self.layers = torch.nn.ModuleList([Layer(sizes, context) for _ in range(layers)])
        self.norm = torch.nn.RMSNorm(hidden)
        self.head = torch.nn.Linear(hidden, vocab, bias=False)
        angles = torch.outer(torch.arange(context).float(), 500000.0 ** (-torch.arange(0, dim, 2).float() / dim)).repeat(1, 2)
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())
        self.register_buffer("seen", torch.tril(torch.ones(context, context, dtype=torch.bool)))

    def forward(self, token, place):
        x, mask = self.embedding(token), self.seen[place][None, None]
        for layer in self.layers:
            x = layer(x, place, mask, self.cosines[place], self.sines[place])
        return self.head(self.norm(x)).argmax(-1)


def milliseconds(options, layers):
    """The median time of a token after `context` others."""
    torch.manual_seed(0)
    with torch.device(options.device):
        model = Model(options.sizes, layers, options.context + options.repetitions + 8)
    model = model.to(getattr(torch, options.dtype)).eval()
    step = model if options.eager else torch.compile(model, mode="max-autotune", fullgraph=True)
    token, taken = torch.zeros(1, 1, dtype=torch.long, device=options.device), []
    wait = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    for i in range(options.repetitions + 6):
        place = torch.tensor([options.context + i], device=options.device)
        wait()
        began = time.perf_counter()
        token = step(token, place).clone()
        wait()
        taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken[6:])  # the first ones compile, and capture


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--sizes", type=numbers, default=[4096, 14336, 32, 8, 128, 128256],
                        help="hidden, MLP, query heads, key heads, head, vocabulary [4096,14336,32,8,128,128256]")
    parser.add_argument("--layers", type=numbers, default=[2, 6], help="two depths [2,6]")
    parser.add_argument("--of", type=int, default=32, help="layers that are reckoned [32]")
    parser.add_argument("--context", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--eager", action="store_true", help="do not compile: whether the script runs")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("skipped: torch sees no GPU")
        return 77
    few, many = options.layers
    with torch.inference_mode():
        of_few, of_many = milliseconds(options, few), milliseconds(options, many)
    layer = (of_many - of_few) / (many - few)
    print(json.dumps({"torch": torch.__version__, "compiled": not options.eager, "context": options.context, "layers": options.of,
                      "ms_a_layer": round(layer, 4), "ms_around": round(of_few - few * layer, 4),
                      "t1_ms": round(of_few + (options.of - few) * layer, 4)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
