"""Writes heads/: tiny speculation heads in the layouts that their authors publish, and what they must compute.

Weights are random, of recipes (recipes.py), which git has in place of them. Every figure comes from float64 formulas
written out below, which compute each node of a tree from its own path, without a cache and without a mask, and which are compared with the authors' code (in float32, with its
cache and its tree mask) before anything is written; where nothing can be run for comparison, the class says so. For
the usual mistakes (MISTAKES) the formulas are run with the mistake made, and must differ. Run by hand when the goldens
must change; the tests read its output only.

    python tests/model/make_heads.py --sources DIR [--only NAME ...]

Packages: torch 2.11.0, transformers 5.24.0, safetensors 0.8.0; speculators 0.9.0 and ibm-fms 1.13.1 with --no-deps;
pydantic, openai, datasets and hs_connectors 0.9.0, which speculators imports. DIR holds checkouts of these
repositories, MiMo/modeling_mimo.py of the model repository XiaomiMiMo/MiMo-7B-Base, and vllm/medusa.py, which is
vllm/model_executor/models/medusa.py of github.com/vllm-project/vllm, 01dbb08:
    EAGLE            github.com/SafeAILab/EAGLE                         cb7e084
    Medusa           github.com/FasterDecoding/Medusa                   e2a5d20
    fms-extras       github.com/foundation-model-stack/fms-extras       16339f7
    Hydra            github.com/zankner/Hydra                           3f39fbd
    ArcticInference  github.com/snowflakedb/ArcticInference             9d46438
    dflash           github.com/z-lab/dflash                            44947fb
    Falcon           github.com/Bestpay-inc/Falcon                      367030e

heads/target, heads/mimo   targets: config.json, model.safetensors, tokenizer.json; mimo has its MTP layer inside
heads/NAME/                config.json, weights, and for all (heads/mimo too)
heads/NAME/expected.json   {"target": folder, "prompt": ids, "rounds": [{"n", "text", "root", "nodes"}, ...]}
    text     the n tokens verified so far; the target has read all but the last, so features of n - 1 tokens are known
    root     what the head predicts after text: a row of logits of the target's vocabulary, null where the head's own
             smaller vocabulary lacks the token
    nodes    a tree of forced tokens, level by level: parent (-1: the root, or the index of an earlier node), token, and
             logits, what the head predicts after text and the path down to this node
Each round's text goes on from the last one's: some nodes of one path, then a token that was not in the tree.
"""

import argparse
import ast
import copy
import dataclasses
import functools
import importlib
import json
import math
import pathlib
import shutil
import sys
import types
from typing import Optional

import torch
import transformers
from torch.nn.functional import gelu, silu

from recipes import SHORTEST_ROW, Recipe
from make_families import nested_config, nested_weights, norms_around_0, write_tokenizer

HEADS = pathlib.Path(__file__).parent / "heads"
VOCAB, HIDDEN, LAYERS = 109, 32, 7
PROMPT = 20
SMALLEST_EFFECT = 1e-2  # of a mistake, on the logit that it changes most
REFERENCE_BOUND = 2e-5  # float32 against float64, on logits of a few units
TREE = [-1, -1, -1, 0, 0, 1, 3, 5]  # parents, level by level
DEPTH = [1, 1, 1, 2, 2, 2, 3, 3]
ACCEPTED = [[0, 3], [], [1, 5, 7], [2]]  # nodes of each round's tree that the text of the next round goes on with


# ---- random weights ----

TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.bool: "BOOL"}


class Draws:
    """Random numbers as recipes make them, which a file's recipe finds again by their bytes, in any of its types."""

    drawn = {}  # first row of what was drawn, or of a part: how

    def __init__(self, name):
        self.name, self.count = name, 0

    def uniform(self, shape, scale, offset):
        self.count += 1
        how = "uniform", f"{scale:.6g}", offset, f"{self.name}/{self.count}"
        values = torch.frombuffer(bytearray(Recipe("parts", "").add("x", "F32", list(shape), *how)), dtype=torch.float32).reshape(shape)
        rows = values.reshape(-1, shape[-1]) if is_in_rows(shape) else values.reshape(1, -1)
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for number, row in enumerate(rows):
                self.drawn[bytes_of(row.to(dtype))] = (*how, number)
        return values

    def normal(self, shape, deviation):
        """Not of that distribution, but of that deviation."""
        return self.uniform(shape, math.sqrt(3) * deviation, 0)


def is_in_rows(shape):
    return len(shape) > 1 and shape[-1] >= SHORTEST_ROW


def bytes_of(tensor):
    return tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def add_to(recipe, name, tensor):
    """A tensor that was drawn, or a part of one; what was not, as it is."""
    dtype, shape, data = TYPES[tensor.dtype], list(tensor.shape), bytes_of(tensor)
    how = Draws.drawn.get(bytes_of(tensor.reshape(-1, shape[-1])[0]) if is_in_rows(shape) else data)
    if how is None:
        assert len(data) < 1000, f"{name} was not drawn"
        recipe.add_bytes(name, dtype, shape, data)
    elif recipe.add(name, dtype, shape, *how) != data:
        raise ValueError(f"{name} is not what was drawn")


def write_safetensors(tensors, file):
    file.parent.mkdir(parents=True, exist_ok=True)
    recipe = Recipe("safetensors", file.parent.name)
    for name, tensor in sorted(tensors.items()):
        add_to(recipe, name, tensor)
    recipe.write(file)


def write_torch_file(tensors, file):
    """As torch writes it: the bytes of tensors, and what is between."""
    torch.save(tensors, file)
    contents, recipe, end = file.read_bytes(), Recipe("parts", file.parent.name), 0
    places = {}
    for name, tensor in tensors.items():
        places.setdefault(contents.index(bytes_of(tensor)), (name, tensor))
    for place, (name, tensor) in sorted(places.items()):
        recipe.add_bytes("before:" + name, "U8", [place - end], contents[end:place])
        add_to(recipe, name, tensor)
        end = place + tensor.nbytes
    recipe.add_bytes("end", "U8", [len(contents) - end], contents[end:])
    assert recipe.contents() == contents, file
    recipe.write(file)


# ---- formulas, in float64 ----

@dataclasses.dataclass
class Shape:
    heads: int
    kv_heads: int
    head_dim: int
    eps: float = 1e-5
    theta: float = 10000.0


def rms(x, weight=None, eps=1e-5):
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return y if weight is None else y * weight


def rotate(x, positions, theta):
    """x: [heads, n, dim]; halves are pairs, as in Hugging Face's layout."""
    dim = x.shape[-1]
    angles = torch.outer(positions.double(), theta ** (-torch.arange(0, dim, 2).double() / dim))
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat([-high, low], -1) * sin


def linear(weights, name, x):
    y = x @ weights[name + ".weight"].T
    return y + weights[name + ".bias"] if name + ".bias" in weights else y


def split_heads(x, heads):
    return x.view(x.shape[0], heads, -1).transpose(0, 1)


def attend(q, k, v, hidden_keys):
    """q: [heads, n, dim]; k, v: [kv_heads, m, dim]; hidden_keys: bool [n, m]. Returns [n, heads * dim]."""
    k, v = (each.repeat_interleave(q.shape[0] // k.shape[0], 0) for each in (k, v))
    scores = (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).masked_fill(hidden_keys, -math.inf)
    return (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)


def attention(weights, name, shape, x, positions):
    """Causal self-attention; x: [n, width] normed."""
    q, k, v = (split_heads(linear(weights, f"{name}.{each}_proj", x), heads)
               for each, heads in (("q", shape.heads), ("k", shape.kv_heads), ("v", shape.kv_heads)))
    future = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
    return linear(weights, name + ".o_proj",
                  attend(rotate(q, positions, shape.theta), rotate(k, positions, shape.theta), v, future))


def gated_mlp(weights, name, x):
    return linear(weights, name + ".down_proj",
                  silu(linear(weights, name + ".gate_proj", x)) * linear(weights, name + ".up_proj", x))


def block(weights, name, shape, x, positions):
    """A Llama or Qwen2 layer on [n, hidden]."""
    x = x + attention(weights, name + ".self_attn", shape,
                      rms(x, weights[name + ".input_layernorm.weight"], shape.eps), positions)
    return x + gated_mlp(weights, name + ".mlp", rms(x, weights[name + ".post_attention_layernorm.weight"], shape.eps))


class Target:
    """A Llama or Qwen2 of random weights, its formula, and the features that heads read."""

    def __init__(self, model, name):
        self.model, self.name, self.config = model, name, model.config
        self.weights = {name: weight.double() for name, weight in model.state_dict().items()}
        self.embeddings = self.weights["model.embed_tokens.weight"]
        self.head = self.weights["lm_head.weight"]
        self.shape = Shape(self.config.num_attention_heads, self.config.num_key_value_heads, self.config.head_dim,
                           self.config.rms_norm_eps, self.config.rope_parameters["rope_theta"])

    def features(self, tokens):
        """(inputs, normed): the residual stream [n, hidden] before each layer and after the last one, and the last
        one's final norm, which is what lm_head reads."""
        x = self.embeddings[torch.tensor(tokens)]
        inputs, positions = [x], torch.arange(len(tokens))
        for i in range(self.config.num_hidden_layers):
            inputs.append(block(self.weights, f"model.layers.{i}", self.shape, inputs[-1], positions))
        return inputs, rms(inputs[-1], self.weights["model.norm.weight"], self.shape.eps)

    def write(self, directory, fields=(), tensors=()):
        """Into a folder, with further fields and tensors beside its own."""
        directory.mkdir(parents=True, exist_ok=True)
        config = {**self.config.to_dict(), "architectures": [type(self.model).__name__], **dict(fields)}
        config = {name: value for name, value in config.items() if value is not None or name == "rope_scaling"}
        write_json(directory / "config.json", config)
        write_tokenizer(VOCAB, directory / "tokenizer.json")
        weights = {name: weight.detach().clone().contiguous() for name, weight in self.model.state_dict().items()}
        write_safetensors(self.stored({**weights, **dict(tensors)}), directory / "model.safetensors")

    def stored(self, weights):
        """Under the names of files."""
        return weights

    def check(self, tokens):
        theirs = self.model(input_ids=torch.tensor([tokens]), output_hidden_states=True)
        inputs, normed = self.features(tokens)
        for i, ours in enumerate([*inputs[:-1], normed]):  # transformers' last one is after the norm
            compare(ours, theirs.hidden_states[i][0], f"{self.name}: hidden states {i}")
        compare(normed @ self.head.T, theirs.logits[0], f"{self.name}: logits")


def compare(ours, theirs, what):
    difference = (ours - theirs.double()).abs().max().item()
    assert difference <= REFERENCE_BOUND * max(1.0, ours.abs().max().item()), f"{what}: differs by {difference:.2g}"


# ---- heads ----

class Head:
    """One head: its files, its formula and its authors' code.

    logits(text, path, mistake) is the formula: a row over the target's vocabulary, NaN where the head lacks a token.
    reference(rounds) yields the same rows of the authors' code: for each (text, tree tokens) the root's row and then
    the nodes' rows. MISTAKES are names that logits() knows.
    """

    MISTAKES = ()
    TREE, ACCEPTED = TREE, ACCEPTED
    MAX_DEPTH = 3  # of a node with logits
    DTYPE = torch.float16

    def __init__(self, name, target, generator):
        self.name, self.target, self.generator, self.draws = name, target, generator, Draws(name)
        self.config, self.files = {}, {}
        self.build()
        self.files = {name: weight.to(self.DTYPE) if weight.is_floating_point() else weight
                      for name, weight in self.files.items()}
        self.weights = {name: weight.double() for name, weight in self.files.items()}

    def normal(self, *shape, scale=None):
        """Random weights [..., inputs] that about keep the size of what they are applied to."""
        return self.draws.normal(shape, scale or 1 / math.sqrt(shape[-1]))

    def norm_weight(self, width=HIDDEN):
        return self.draws.uniform([width], 0.45, 1.05)

    def layer(self, name, shape, width=HIDDEN, inner=44, inputs=None, bias=False):
        """Adds the projections of a layer; `inputs` is the width of what attention reads."""
        rows = {"q": shape.heads * shape.head_dim, "k": shape.kv_heads * shape.head_dim,
                "v": shape.kv_heads * shape.head_dim}
        for each, n in rows.items():
            self.files[f"{name}.self_attn.{each}_proj.weight"] = self.normal(n, inputs or width, scale=0.3)
            if bias:
                self.files[f"{name}.self_attn.{each}_proj.bias"] = self.normal(n, scale=0.5)
        self.files[f"{name}.self_attn.o_proj.weight"] = self.normal(width, rows["q"])
        self.files[f"{name}.mlp.gate_proj.weight"] = self.normal(inner, width)
        self.files[f"{name}.mlp.up_proj.weight"] = self.normal(inner, width)
        self.files[f"{name}.mlp.down_proj.weight"] = self.normal(width, inner)
        self.files[f"{name}.post_attention_layernorm.weight"] = self.norm_weight(width)

    def known(self):
        """Token ids that the head can draft."""
        return list(range(VOCAB))

    def save(self, directory):
        write_safetensors(self.files, directory / "model.safetensors")

    def float32(self):
        return {name: weight.float() if weight.is_floating_point() else weight for name, weight in self.files.items()}


HEAD_SHAPE = Shape(heads=4, kv_heads=2, head_dim=HIDDEN // 4, eps=1e-5)


def llama_config(**more):
    return {"hidden_act": "silu", "hidden_size": HIDDEN, "intermediate_size": 44, "max_position_embeddings": 2048,
            "model_type": "llama", "num_attention_heads": HEAD_SHAPE.heads, "num_hidden_layers": 1,
            "num_key_value_heads": HEAD_SHAPE.kv_heads, "rms_norm_eps": HEAD_SHAPE.eps, "vocab_size": VOCAB,
            "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "tie_word_embeddings": False, **more}


def levels(tokens):
    """[(indices of the nodes of a level), ...] of the first len(tokens) nodes of TREE."""
    return [[i for i in range(len(tokens)) if DEPTH[i] == d] for d in range(1, max(DEPTH[:len(tokens)]) + 1)]


class Eagle(Head):
    """What EAGLE 1 and 3 share. Slot p reads (feature of p, embedding of token p + 1) and predicts token p + 2; its
    position is p. Features of drafted slots are what the slot before put out. The reference is the repository's class
    with its cache and its tree mask."""

    MISTAKES = ("slot", "recycled", "polluted", "theta")
    shape = HEAD_SHAPE  # rope_theta is the head's own: 10000, as its config does not say

    def embeddings(self):
        return self.weights.get("embed_tokens.weight", self.target.embeddings)

    def logits(self, text, path, mistake=None, accepted=0):
        true = self.start(self.features(text, mistake), mistake)
        tokens = text + path
        tokens = torch.tensor(tokens[:-1] if mistake == "slot" else tokens[1:])  # slot: the feature's own token
        stale = range(0)
        if mistake == "polluted":  # keeps the drafted slots of the accepted tokens
            stale = range(len(true) - 1 - accepted, len(true) - 1)
        shape = dataclasses.replace(self.shape, theta=self.target.shape.theta) if mistake == "theta" else self.shape
        feature = true[:0]
        for i in range(len(tokens)):
            if i < len(true) and i not in stale:
                feature = torch.cat([feature, true[i:i + 1]])
            else:
                _, recycled = self.forward(feature, self.embeddings()[tokens[:i]], shape, mistake)
                feature = torch.cat([feature, feature[-1:] if mistake == "recycled" else recycled[-1:]])
        logits, _ = self.forward(feature, self.embeddings()[tokens], shape, mistake)
        return self.widen(logits[-1], mistake)

    def widen(self, row, mistake=None):
        return row

    def reference(self, rounds):
        """Drives the repository's Model as its topK_genrate does, with our tokens in place of its own."""
        model = self.reference_model()
        model.load_state_dict({"embed_tokens.weight": self.target.embeddings.float(), **self.float32()})
        model.eval()
        stable, length = None, 0
        for text, tokens in rounds:
            model.reset()
            out, stable = model(self.features(text)[length:].float()[None], input_ids=torch.tensor([text[1 + length:]]),
                                past_key_values=stable, use_cache=True)
            length = len(text) - 1
            rows = [self.reference_logits(model, out[0, -1])]
            hidden, past, seen = {-1: out[0, -1]}, stable, []
            for depth, level in enumerate(levels(tokens)):
                mask = torch.zeros(len(level), len(seen) + len(level))
                for row, node in enumerate(level):
                    for ancestor in ancestry(node):
                        mask[row, (seen + level).index(ancestor)] = 1
                model.tree_mask = mask[None, None]
                out, past = model(torch.stack([hidden[TREE[node]] for node in level])[None],
                                  input_ids=torch.tensor([[tokens[node] for node in level]]), past_key_values=past,
                                  position_ids=torch.full((len(level),), length + depth), use_cache=True)
                hidden.update({node: out[0, row] for row, node in enumerate(level)})
                rows += [self.reference_logits(model, each) for each in out[0]]
                seen += level
            yield [self.widen(row) for row in rows]


class Eagle3(Eagle):
    """EAGLE-3 as its authors publish it: midlayer.*, a smaller vocabulary, the target's embeddings."""

    MISTAKES = (*Eagle.MISTAKES, "norm_before_residual", "norm_output", "d2t as ids", "layers")
    PREFIX = "midlayer"
    AUX = (2, LAYERS // 2, LAYERS - 3)  # the features are the inputs of these layers
    DRAFT_VOCAB = 83
    LAYERS = 1  # those after the first are ordinary ones
    FLAGS = {}

    def build(self):
        self.config = llama_config(architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=self.DRAFT_VOCAB,
                                   torch_dtype="float16")
        self.tensors()

    def tensors(self):
        self.layer(self.PREFIX, self.shape, inputs=2 * HIDDEN)
        self.files[f"{self.PREFIX}.hidden_norm.weight"] = self.norm_weight()
        self.files[f"{self.PREFIX}.input_layernorm.weight"] = self.norm_weight()
        self.files["fc.weight"] = self.normal(HIDDEN, 3 * HIDDEN)
        self.files["norm.weight"] = self.norm_weight()
        self.files["lm_head.weight"] = self.normal(self.DRAFT_VOCAB, HIDDEN)
        for i in range(1, self.LAYERS):
            self.layer(f"layers.{i}", self.shape)
            self.files[f"layers.{i}.input_layernorm.weight"] = self.norm_weight()
        if self.DRAFT_VOCAB < VOCAB:
            known = torch.randperm(VOCAB, generator=self.generator)[:self.DRAFT_VOCAB].sort().values
            self.files["d2t"] = known - torch.arange(self.DRAFT_VOCAB)
            self.files["t2d"] = torch.zeros(VOCAB, dtype=torch.bool)
            self.files["t2d"][known] = True

    def save(self, directory):
        write_torch_file(self.files, directory / "pytorch_model.bin")

    def known(self):
        d2t = self.files.get("d2t", torch.zeros(VOCAB, dtype=torch.long))
        return (d2t + torch.arange(self.DRAFT_VOCAB)).tolist()

    def flag(self, name, mistake=None):
        return self.FLAGS.get(name, False) != (mistake == name)

    def features(self, text, mistake=None):
        inputs, _ = self.target.features(text[:-1])
        return torch.cat([inputs[i + (mistake == "layers")] for i in self.AUX], -1)

    def start(self, x, mistake=None):
        w, eps = self.weights, self.shape.eps
        if self.flag("norm_before_fc", mistake):
            x = rms(x, w["input_norm.weight"], eps)
        if self.flag("fc_norm", mistake):
            x = torch.cat([rms(part, w[f"fc_norm.{i}.weight"], eps) for i, part in enumerate(x.chunk(3, -1))], -1)
        return linear(w, "fc", x)

    def forward(self, g, e, shape, mistake):
        w, name = self.weights, self.PREFIX
        normed = rms(g, w[f"{name}.hidden_norm.weight"], shape.eps)
        x = torch.cat([rms(e, w[f"{name}.input_layernorm.weight"], shape.eps), normed], -1)
        y = normed if self.flag("norm_before_residual", mistake) else g
        y = y + attention(w, f"{name}.self_attn", shape, x, torch.arange(len(x)))
        z = y + gated_mlp(w, f"{name}.mlp", rms(y, w[f"{name}.post_attention_layernorm.weight"], shape.eps))
        for i in range(1, self.LAYERS):
            z = block(w, f"layers.{i}", shape, z, torch.arange(len(x)))
        normed = rms(z, w["norm.weight"], shape.eps)
        return linear(w, "lm_head", normed), normed if self.flag("norm_output", mistake) else z

    def widen(self, row, mistake=None):
        full = torch.full((VOCAB,), math.nan, dtype=torch.float64)
        full[self.files["d2t"] if mistake == "d2t as ids" else self.known()] = row.double()
        return full

    def reference_model(self):
        module = importlib.import_module("eagle.model.cnets")
        config = importlib.import_module("eagle.model.configs").EConfig(**self.config)
        config.rope_scaling = None
        return module.Model(config)

    def reference_logits(self, model, hidden):
        return model.lm_head(model.norm(hidden))


class Eagle1(Eagle):
    """EAGLE (and EAGLE-2, HASS): no norm before attention, none at the end, the target's head, with fc.bias."""

    MISTAKES = (*Eagle.MISTAKES, "final norm", "input norm", "hidden first", "unnormed")
    BIAS = True

    def build(self):
        self.config = llama_config(architectures=["LlamaForCausalLM"], torch_dtype="float16")
        if not self.BIAS:
            self.config["bias"] = False
        self.layer("layers.0", self.shape)
        self.files["fc.weight"] = self.normal(HIDDEN, 2 * HIDDEN)
        if self.BIAS:
            self.files["fc.bias"] = self.normal(HIDDEN, scale=0.5)
            self.files["embed_tokens.weight"] = self.target.model.model.embed_tokens.weight.detach().clone()

    def save(self, directory):
        if self.BIAS:
            write_torch_file(self.files, directory / "pytorch_model.bin")
        else:
            super().save(directory)

    def features(self, text, mistake=None):
        inputs, normed = self.target.features(text[:-1])
        return inputs[-1] if mistake == "unnormed" else normed

    def start(self, x, mistake=None):
        return x

    def forward(self, h, e, shape, mistake):
        w = self.weights
        x = linear(w, "fc", torch.cat([h, e] if mistake == "hidden first" else [e, h], -1))
        y = x + attention(w, "layers.0.self_attn", shape, rms(x) if mistake == "input norm" else x,
                          torch.arange(len(x)))
        z = y + gated_mlp(w, "layers.0.mlp", rms(y, w["layers.0.post_attention_layernorm.weight"], shape.eps))
        return (rms(z) if mistake == "final norm" else z) @ self.target.head.T, z

    def reference_model(self):
        config = importlib.import_module("eagle.model.configs").EConfig(**self.config)
        config.rope_scaling = None
        return importlib.import_module("eagle.model.cnets1").Model(config, bias=self.BIAS)

    def reference_logits(self, model, hidden):
        return hidden @ self.target.head.float().T


class Eagle1WithoutBias(Eagle1):
    """As for Llama 3: bias false, embeddings of the target, safetensors."""

    BIAS = False


class Eagle3Speculators(Eagle3):
    """EAGLE-3 as speculators writes it: layers.0.*, own embeddings, the normed feature in the residual stream, the
    layers of the features named. Its positions are p + 1, which changes nothing but rounding. The reference is its
    training pass, whose step j reads token p + 1 + j in slot p."""

    MISTAKES = (*Eagle.MISTAKES, "norm_before_residual", "norm_output", "d2t as ids", "layers", "embeddings")
    PREFIX, AUX, DRAFT_VOCAB, DTYPE = "layers.0", (2, 4, 6), 71, torch.bfloat16
    FLAGS = {"norm_before_residual": True}
    CLASS, CONFIG, TYPE = "Eagle3DraftModel", "Eagle3SpeculatorConfig", "eagle3"
    LAYER_IDS = list(AUX)  # in config.json
    MORE = {}

    def build(self):
        speculators = importlib.import_module("speculators")
        models = importlib.import_module(f"speculators.models.{self.TYPE}")
        shape = llama_config(head_dim=HEAD_SHAPE.head_dim, num_hidden_layers=self.LAYERS,
                             rope_parameters={"rope_type": "default", "rope_theta": HEAD_SHAPE.theta})
        layer = transformers.LlamaConfig(**shape)
        layer._attn_implementation = "eager"
        self.settings = getattr(models, self.CONFIG)(
            transformer_layer_config=layer, draft_vocab_size=self.DRAFT_VOCAB,
            eagle_aux_hidden_state_layer_ids=self.LAYER_IDS, **self.FLAGS, **self.MORE,
            speculators_config=speculators.SpeculatorsConfig(
                algorithm=self.TYPE, default_proposal_method="greedy",
                proposal_methods=[importlib.import_module("speculators.proposals.greedy").GreedyTokenProposalConfig(
                    speculative_tokens=4)],
                verifier=speculators.VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"])))
        self.config = json.loads(self.settings.to_json_string(use_diff=False))
        self.tensors()
        self.files["embed_tokens.weight"] = self.normal(VOCAB, HIDDEN, scale=1.0)
        if self.flag("norm_before_fc"):
            self.files["input_norm.weight"] = self.norm_weight(3 * HIDDEN)
        if self.flag("fc_norm"):
            self.files.update({f"fc_norm.{i}.weight": self.norm_weight() for i in range(3)})

    def save(self, directory):
        Head.save(self, directory)

    def logits(self, text, path, mistake=None, accepted=0):
        self.mistaken = mistake == "embeddings"
        return super().logits(text, path, mistake, accepted)

    def embeddings(self):
        return self.target.embeddings if self.mistaken else self.weights["embed_tokens.weight"]

    def reference_model(self):
        model = getattr(importlib.import_module(f"speculators.models.{self.TYPE}.core"), self.CLASS)(self.settings)
        missing, unexpected = model.load_state_dict(self.float32(), strict=False)
        assert not unexpected and all(name.startswith("verifier_") for name in missing), (missing, unexpected)
        return model.eval()

    def reference(self, rounds):
        model = self.reference_model()
        rows = []
        model.lm_head.register_forward_hook(lambda module, inputs, output: rows.append(output[0]))
        for text, tokens in rounds:
            found = []
            for node in range(-1, len(tokens)):
                path = [tokens[i] for i in ancestry(node)]
                rows.clear()
                features = torch.cat([self.features(text).float(), torch.zeros(len(path), 3 * HIDDEN)])
                model(hidden_states=features[None], input_ids=torch.tensor([text[1:] + path]),
                      document_ids=torch.zeros(1, len(features), dtype=torch.long), ttt_steps=len(path) + 1)
                found.append(self.widen(rows[-1][len(text) - 2]))
            yield found


class Eagle31(Eagle3Speculators):
    """EAGLE-3.1: one norm before fc, the output's norm in the recycled feature; default layers, whole vocabulary."""

    AUX, LAYER_IDS, DRAFT_VOCAB = Eagle3.AUX, None, VOCAB
    MISTAKES = (*Eagle.MISTAKES, "norm_before_residual", "norm_output", "norm_before_fc", "layers", "embeddings")
    FLAGS = {"norm_before_fc": True, "norm_output": True}


class Eagle31FcNorm(Eagle3Speculators):
    """EAGLE-3.1 with a norm for each layer's features."""

    AUX, LAYER_IDS = Eagle3.AUX, None
    MISTAKES = (*Eagle3Speculators.MISTAKES, "fc_norm")
    FLAGS = {"fc_norm": True, "norm_output": True, "norm_before_residual": True}


class Peagle(Eagle3Speculators):
    """P-EAGLE: below the root the slots read a mask token and mask_hidden in place of tokens and features, all in one
    pass. No cache survives it but the true slots'. The reference is the class's own modules with its mask's rule,
    slot d of an anchor seeing the true slots and its own: training alone has a forward there."""

    MISTAKES = ("slot", "theta", "norm_before_residual", "layers", "embeddings", "tokens", "hidden")
    TYPE, CLASS, CONFIG = "peagle", "PEagleDraftModel", "PEagleSpeculatorConfig"
    MASK_TOKEN = 77
    MORE = {"mask_token_id": MASK_TOKEN}
    AUX, LAYER_IDS, DRAFT_VOCAB = Eagle3.AUX, None, VOCAB - 2

    def build(self):
        super().build()
        self.files["mask_hidden"] = self.normal(1, 1, 3 * HIDDEN, scale=1.0)

    def logits(self, text, path, mistake=None, accepted=0):
        self.mistaken = mistake == "embeddings"
        features = self.features(text, mistake)
        masks = self.weights["mask_hidden"][0].expand(len(path), -1)
        if mistake == "hidden":
            masks = features[-1:].expand(len(path), -1)
        tokens = text + (path if mistake == "tokens" else [self.MASK_TOKEN] * len(path))
        tokens = tokens[:-1] if mistake == "slot" else tokens[1:]
        shape = dataclasses.replace(self.shape, theta=self.target.shape.theta) if mistake == "theta" else self.shape
        row, _ = self.forward(self.start(torch.cat([features, masks])), self.embeddings()[torch.tensor(tokens)],
                              shape, mistake)
        return self.widen(row[-1])

    def reference(self, rounds):
        model = self.reference_model()
        for text, tokens in rounds:
            depth = max(DEPTH[:len(tokens)])
            features = torch.cat([self.features(text).float(),
                                  model.mask_hidden[0].expand(depth, -1)])[None]
            ids = torch.tensor([text[1:] + [self.MASK_TOKEN] * depth])
            x = torch.cat([model.embed_tokens(ids), model.fc(features)], -1)
            n = x.shape[1]
            positions = torch.arange(n)[None]
            mask = torch.full((n, n), -math.inf).triu(1)[None, None]
            turns = model.rotary_emb(x, positions)
            for layer in model.layers:
                x = layer(x, attention_mask=mask, position_ids=positions, position_embeddings=turns)
            rows = model.lm_head(model.norm(x))[0, len(text) - 2:]
            yield [self.widen(rows[depth]) for depth in [0, *DEPTH[:len(tokens)]]]


class PeagleTwoLayers(Peagle):
    """P-EAGLE of two layers; only the first reads the embedding beside the feature."""

    LAYERS = 2


class MimoMtp(Eagle):
    """MiMo's MTP layer, inside the target's checkpoint: hidden first, then the embedding, both normed; a Qwen2 layer;
    a final norm, whose output is recycled. The embedding of position 0 is not zeroed (the authors' code does not, vLLM
    does). The reference is the class of the model repository's modeling_mimo.py, path by path."""

    MISTAKES = ("slot", "recycled", "polluted", "reversed", "unnormed", "before the norm")
    PREFIX = "model.mtp_layers.0"
    DTYPE = torch.float32

    def build(self):
        self.shape = self.target.shape
        self.layer(self.PREFIX, self.shape, inner=52, bias=True)
        for name in ("input", "token", "hidden", "final"):
            self.files[f"{self.PREFIX}.{name}_layernorm.weight"] = self.norm_weight()
        self.files[f"{self.PREFIX}.input_proj.weight"] = self.normal(HIDDEN, 2 * HIDDEN)

    def save(self, directory):
        self.target.write(directory, {"architectures": ["MiMoForCausalLM"], "model_type": "mimo",
                                      "num_nextn_predict_layers": 1, "rope_parameters": None, "rope_scaling": None,
                                      "rope_theta": self.shape.theta, "torch_dtype": "float32"}, self.files)

    def features(self, text, mistake=None):
        inputs, normed = self.target.features(text[:-1])
        return inputs[-1] if mistake == "unnormed" else normed

    def start(self, x, mistake=None):
        return x

    def norm(self, name, x):
        return rms(x, self.weights[f"{self.PREFIX}.{name}_layernorm.weight"], self.shape.eps)

    def forward(self, h, e, shape, mistake):
        parts = [self.norm("hidden", h), self.norm("token", e)]
        parts = parts[::-1] if mistake == "reversed" else parts
        x = linear(self.weights, f"{self.PREFIX}.input_proj", torch.cat(parts, -1))
        x = block(self.weights, self.PREFIX, shape, x, torch.arange(len(x)))
        normed = self.norm("final", x)
        return normed @ self.target.head.T, x if mistake == "before the norm" else normed

    def reference(self, rounds):
        qwen2 = importlib.import_module("transformers.models.qwen2.modeling_qwen2")
        names = {name: getattr(qwen2, name) for name in ("Qwen2RMSNorm", "Qwen2Attention", "Qwen2MLP")}
        layer = source_class("MiMo/modeling_mimo.py", "MiMoMTPLayers", **names, Optional=Optional, Tuple=tuple,
                             Cache=transformers.Cache)(self.target.config)
        layer.load_state_dict({name.removeprefix(self.PREFIX + "."): value for name, value in self.float32().items()})
        model = self.target.model
        for text, tokens in rounds:
            start = model.model(input_ids=torch.tensor([text[:-1]])).last_hidden_state
            rows = []
            for node in range(-1, len(tokens)):
                hidden, path = start, [tokens[i] for i in ancestry(node)]
                for n in range(len(text) - 1, len(text) + len(path)):
                    positions = torch.arange(n)[None]
                    out = layer(model.model.embed_tokens(torch.tensor([(text + path)[1:n + 1]])), hidden,
                                torch.full((n, n), -math.inf).triu(1)[None, None], positions,
                                position_embeddings=model.model.rotary_emb(hidden, positions))
                    hidden = torch.cat([hidden, out[:, -1:]], 1)
                rows.append(model.lm_head(out[0, -1]))
            yield rows


class DeepseekMtp(Eagle):
    """The layer behind the last one of DeepSeek-V3 and GLM-4.5: the embedding first, then the hidden state, both
    normed; a layer with experts; a final norm, whose output is recycled. The layer's own arithmetic is transformers', as
    make_families.py has it; the reference is its MtpModel."""

    MISTAKES = ("slot", "recycled", "polluted", "reversed", "unnormed", "before the norm")
    DTYPE = torch.float32

    def build(self):
        self.shape = self.target.shape
        config, layers = self.target.config, self.target.model.model.layers
        self.prefix = f"model.layers.{len(layers)}"
        mtp = transformers.modeling_layers.MtpModel(self.target.model, 1)
        mtp.layers[0].mtp_block.load_state_dict(randomised(mtp.layers[0].mtp_block, self.draws).state_dict())
        self.mtp, self.layer64 = mtp.eval(), None
        for name in ("enorm", "hnorm", "post_norm"):
            getattr(mtp.layers[0], name).weight.data.copy_(self.norm_weight())
        mtp.layers[0].eh_proj.weight.data.copy_(self.normal(HIDDEN, 2 * HIDDEN))
        self.layer64 = copy.deepcopy(mtp.layers[0]).double()
        for name, weight in stored_layer(mtp.layers[0].mtp_block.state_dict()).items():
            self.files[f"{self.prefix}.{name}"] = weight.clone()
        stored = {"enorm": "enorm", "hnorm": "hnorm", "post_norm": "shared_head.norm", "eh_proj": "eh_proj"}
        for name, called in stored.items():
            self.files[f"{self.prefix}.{called}.weight"] = getattr(mtp.layers[0], name).weight.data.clone()
        self.files[f"{self.prefix}.embed_tokens.weight"] = self.target.embeddings.float()
        self.files[f"{self.prefix}.shared_head.head.weight"] = self.target.head.float()

    def embeddings(self):
        return self.target.embeddings

    def save(self, directory):
        self.target.write(directory, {"num_nextn_predict_layers": 1}, self.files)

    def features(self, text, mistake=None):
        inputs, normed = self.target.features(text[:-1])
        return inputs[-1] if mistake == "unnormed" else normed

    def start(self, x, mistake=None):
        return x

    def forward(self, h, e, shape, mistake):
        if not len(h):
            return h, h
        layer, positions = self.layer64, torch.arange(len(h))[None]
        parts = [layer.enorm(e), layer.hnorm(h)]
        x = layer.eh_proj(torch.cat(parts[::-1] if mistake == "reversed" else parts, -1))[None]
        future = torch.full((len(h), len(h)), -math.inf, dtype=torch.float64).triu(1)[None, None]
        x = layer.mtp_block(x, attention_mask=future, position_ids=positions,
                            position_embeddings=self.target.model64.model.rotary_emb(x, positions))[0]
        normed = layer.post_norm(x)
        return normed @ self.target.head.T, x if mistake == "before the norm" else normed

    def reference(self, rounds):
        model = self.target.model
        for text, tokens in rounds:
            start = model.model(input_ids=torch.tensor([text[:-1]])).last_hidden_state
            rows = []
            for node in range(-1, len(tokens)):
                hidden, path = start, [tokens[i] for i in ancestry(node)]
                for n in range(len(text) - 1, len(text) + len(path)):
                    out = self.mtp.forward_layer(0, hidden, torch.arange(n)[None], None,
                                                 input_ids=torch.tensor([(text + path)[1:n + 1]]))
                    hidden = torch.cat([hidden, out[:, -1:]], 1)
                rows.append(model.lm_head(out[0, -1]))
            yield rows


class QwenMtp(DeepseekMtp):
    """The MTP layer of Qwen3-Next and Qwen3.5: as DeepSeek's, but that all norms multiply by 1 + weight, and the layer has attention
    with a gate on its output and experts beside a gated one. The layer is transformers' own; it has no code for what is
    around it, so that the reference is this formula in float32, path by path over a growing text."""

    MISTAKES = (*DeepseekMtp.MISTAKES, "no offset")
    MODULE, PREFIX = "qwen3_next", "Qwen3Next"

    def build(self):
        module = importlib.import_module(f"transformers.models.{self.MODULE}.modeling_{self.MODULE}")
        self.shape = self.target.shape
        config = copy.deepcopy(self.target.config)
        config.layer_types, config.mlp_only_layers = ["full_attention"], []
        layer = getattr(module, self.PREFIX + "DecoderLayer")(config, 0)
        if hasattr(layer.mlp, "experts"):
            layer.mlp.experts.config._experts_implementation = "eager"
        self.layers = torch.nn.ModuleDict({
            "block": randomised(layer, self.draws), "fc": torch.nn.Linear(2 * HIDDEN, HIDDEN, bias=False),
            **{name: getattr(module, self.PREFIX + "RMSNorm")(HIDDEN, config.rms_norm_eps)
               for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")}}).eval()
        self.layers["fc"].weight.data.copy_(self.normal(HIDDEN, 2 * HIDDEN))
        for name, weight in self.layers.named_parameters():
            if "norm" in name:
                weight.data.copy_(self.draws.uniform(weight.shape, 0.45, 0.05))
            if name.startswith("block."):
                continue
            self.files[f"mtp.{name}"] = weight.data.clone()
        for name, weight in stored_layer(self.layers["block"].state_dict()).items():
            self.files[f"mtp.layers.0.{name}"] = weight.clone()
        self.layers64 = copy.deepcopy(self.layers).double()

    def save(self, directory):
        self.target.write(directory, tensors=self.files)

    def forward(self, h, e, shape, mistake):
        if not len(h):
            return h, h
        return self.run(self.layers64, self.target.model64, h, e, mistake)

    def run(self, layers, model, h, e, mistake=None):
        norm = (lambda name, x: layers[name](x))
        if mistake == "no offset":
            norm = (lambda name, x: rms(x, layers[name].weight, layers[name].eps))
        parts = [norm("pre_fc_norm_embedding", e), norm("pre_fc_norm_hidden", h)]
        x = layers["fc"](torch.cat(parts[::-1] if mistake == "reversed" else parts, -1))[None]
        positions = torch.arange(len(h))[None]
        future = torch.full((len(h), len(h)), -math.inf, dtype=x.dtype).triu(1)[None, None]
        x = layers["block"](x, position_embeddings=model.model.rotary_emb(x, positions), attention_mask=future)[0]
        normed = norm("norm", x)
        return model.lm_head(normed), x if mistake == "before the norm" else normed

    def reference(self, rounds):
        model = self.target.model
        for text, tokens in rounds:
            start = model.model(input_ids=torch.tensor([text[:-1]])).last_hidden_state[0]
            rows = []
            for node in range(-1, len(tokens)):
                hidden, path = start, [tokens[i] for i in ancestry(node)]
                for n in range(len(text) - 1, len(text) + len(path)):
                    embedded = model.model.embed_tokens(torch.tensor((text + path)[1:n + 1]))
                    logits, normed = self.run(self.layers, model, hidden, embedded)
                    hidden = torch.cat([hidden, normed[-1:]])
                rows.append(logits[-1])
            yield rows


class Medusa(Head):
    """Medusa-1: head i maps the feature of the last token that the target has read to token i + 2 after it. The
    reference is the repository's ResBlock, put together as its MedusaModel does."""

    MISTAKES = ("unnormed", "next head", "no residual")
    HEADS, BLOCKS, OWN_HEADS = 4, 1, True
    MAX_DEPTH = HEADS - 1

    def build(self):
        self.config = {"base_model_name_or_path": "../target", "medusa_num_heads": self.HEADS,
                       "medusa_num_layers": self.BLOCKS, "transformers_version": "4.34.1"}
        for i in range(self.HEADS):
            shared = self.normal(HIDDEN, HIDDEN), self.normal(HIDDEN, scale=0.5)  # one module, stored BLOCKS times
            for j in range(self.BLOCKS):
                self.files[f"{i}.{j}.linear.weight"], self.files[f"{i}.{j}.linear.bias"] = shared
            if self.OWN_HEADS:
                self.files[f"{i}.{self.BLOCKS}.weight"] = self.normal(VOCAB, HIDDEN)

    def save(self, directory):
        write_torch_file(self.files, directory / "medusa_lm_head.pt")

    def logits(self, text, path, mistake=None, accepted=0):
        inputs, normed = self.target.features(text[:-1])
        x = (inputs[-1] if mistake == "unnormed" else normed)[-1]
        i = min(len(path) + (mistake == "next head"), self.HEADS - 1)
        for j in range(self.BLOCKS):
            x = (0 if mistake == "no residual" else x) + silu(linear(self.weights, f"{i}.{j}.linear", x))
        return linear(self.weights, f"{i}.{self.BLOCKS}", x) if self.OWN_HEADS else self.target.head @ x

    def reference(self, rounds):
        block_class = source_class("Medusa/medusa/model/medusa_model.py", "ResBlock")
        heads = torch.nn.ModuleList(
            torch.nn.Sequential(*([block_class(HIDDEN)] * self.BLOCKS), torch.nn.Linear(HIDDEN, VOCAB, bias=False))
            for _ in range(self.HEADS))
        weights = self.float32()
        if not self.OWN_HEADS:
            weights.update({f"{i}.{self.BLOCKS}.weight": self.target.head.float() for i in range(self.HEADS)})
        heads.load_state_dict(weights)
        for text, tokens in rounds:
            feature = self.target.model.model(input_ids=torch.tensor([text[:-1]])).last_hidden_state[0, -1]
            yield [heads[depth](feature) for depth in [0, *DEPTH[:len(tokens)]]]


class MedusaTwoBlocks(Medusa):
    """Two residual blocks, which the authors' `[block] * n` makes one module with its weights stored twice."""

    BLOCKS = 2


class MedusaBlocksOnly(Medusa):
    """The residual blocks alone, in safetensors: the target's output head is used."""

    OWN_HEADS = False
    DTYPE = torch.bfloat16

    def save(self, directory):
        write_safetensors(self.files, directory / "medusa_lm_head.safetensors")


class MedusaVllm(Medusa):
    """As vLLM names them: several blocks of their own, without biases, and heads of the most frequent tokens. The
    reference is vLLM's ResidualBlock, put together as its Medusa does."""

    BLOCKS, KNOWN = 2, 61
    MISTAKES = ("unnormed", "next head", "no residual", "first tokens")

    def build(self):
        self.config = {"architectures": ["MedusaModel"], "hidden_size": HIDDEN, "medusa_fc_bias": False,
                       "model_type": "medusa", "num_heads": self.HEADS, "num_hidden_layers": self.BLOCKS,
                       "truncated_vocab_size": self.KNOWN, "vocab_size": VOCAB}
        self.files["token_map"] = torch.arange(self.KNOWN) * 7 % VOCAB
        for i in range(self.HEADS):
            for j in range(self.BLOCKS):
                self.files[f"blocks.{i}.layers.{j}.weight"] = self.normal(HIDDEN, HIDDEN)
            self.files[f"lm_heads.{i}.weight"] = self.normal(self.KNOWN, HIDDEN)

    def known(self):
        return self.files["token_map"].tolist()

    save = Head.save

    def spread(self, logits, tokens=None):
        row = torch.full((VOCAB,), math.nan, dtype=logits.dtype)
        row[self.known() if tokens is None else tokens] = logits
        return row

    def logits(self, text, path, mistake=None, accepted=0):
        inputs, normed = self.target.features(text[:-1])
        x = (inputs[-1] if mistake == "unnormed" else normed)[-1]
        i = min(len(path) + (mistake == "next head"), self.HEADS - 1)
        for j in range(self.BLOCKS):
            x = (0 if mistake == "no residual" else x) + silu(linear(self.weights, f"blocks.{i}.layers.{j}", x))
        first = list(range(self.KNOWN)) if mistake == "first tokens" else None
        return self.spread(linear(self.weights, f"lm_heads.{i}", x), first)

    def reference(self, rounds):
        block_class = source_class("vllm/medusa.py", "ResidualBlock", VllmConfig=object)
        weights = self.float32()
        blocks = torch.nn.ModuleList(block_class(types.SimpleNamespace(), HIDDEN, self.BLOCKS) for _ in range(self.HEADS))
        blocks.load_state_dict({name.removeprefix("blocks."): value for name, value in weights.items()
                                if name.startswith("blocks.")})
        for text, tokens in rounds:
            feature = self.target.model.model(input_ids=torch.tensor([text[:-1]])).last_hidden_state[0, -1]
            yield [self.spread(weights[f"lm_heads.{depth}.weight"] @ blocks[depth](feature))
                   for depth in [0, *DEPTH[:len(tokens)]]]


class MlpSpeculator(Head):
    """IBM's: a state from the last feature, to which each drafted token's embedding is added. The reference is
    fms-extras' MLPSpeculator, whose training pass takes the tokens as given."""

    MISTAKES = ("unnormed", "weight", "mean")  # the tanh form of GELU is 2e-3 away
    HEADS, TIED, SCALED, INNER = 4, False, False, 40
    MAX_DEPTH = HEADS - 1

    def build(self):
        self.config = {"architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator",
                       "emb_dim": HIDDEN, "inner_dim": self.INNER, "n_predict": self.HEADS, "vocab_size": VOCAB,
                       "n_candidates": 5, "top_k_tokens_per_head": [4, 3, 2, 2], "tie_weights": self.TIED,
                       "scale_input": self.SCALED, "torch_dtype": "float16"}
        inner = self.INNER or HIDDEN
        for i in range(self.HEADS):
            tensors = {f"emb.{i}.weight": self.normal(VOCAB, inner, scale=1.0),
                       f"proj.{i}.weight": self.normal(inner, inner if i else HIDDEN),
                       f"ln.{i}.weight": self.norm_weight(inner), f"ln.{i}.bias": self.normal(inner, scale=0.3),
                       f"head.{i}.weight": self.normal(VOCAB, inner, scale=0.4)}
            if self.TIED:  # as saved from tied modules
                tensors = {name: self.files.get("speculator." + name.replace(f".{i}.", ".1." if "proj" in name and i
                                                                            else ".0."), value)
                           for name, value in tensors.items()}
            self.files.update({"speculator." + name: value for name, value in tensors.items()})

    def save(self, directory):
        write_safetensors(self.files, directory / "model.safetensors")

    def state(self, text, mistake=None):
        inputs, normed = self.target.features(text[:-1])
        s = (inputs[-1] if mistake == "unnormed" else normed)[-1]
        return rms(s, eps=1e-6) / math.sqrt(2) if self.SCALED else s

    def logits(self, text, path, mistake=None, accepted=0):
        w, inner = self.weights, self.INNER or HIDDEN
        share = 0.5 ** (0.5 / self.HEADS)
        weight = math.sqrt((1 - share ** 2) * inner / 2) / share
        s = self.state(text, mistake)
        for i, token in enumerate([text[-1], *path]):
            x = linear(w, f"speculator.proj.{i}", s)
            x = x + (1 if mistake == "weight" else weight) * w[f"speculator.emb.{i}.weight"][token]
            x = x - x.mean() if mistake == "mean" else x
            x = rms(x, eps=1e-6) * w[f"speculator.ln.{i}.weight"] + w[f"speculator.ln.{i}.bias"]
            s = gelu(x)
        return linear(w, f"speculator.head.{i}", s)

    def reference(self, rounds):
        norm = importlib.import_module("fms.modules.layernorm").LayerNormParameterized
        model_class = source_class("fms-extras/fms_extras/models/speculator.py", "MLPSpeculator",
                                   LayerNormParameterized=norm)
        model = model_class(HIDDEN, self.INNER, VOCAB, self.HEADS, tie_weights=self.TIED,
                                 scale_input=self.SCALED)
        model.load_state_dict({name.removeprefix("speculator."): value for name, value in self.float32().items()})
        for text, tokens in rounds:
            state = self.target.model.model(input_ids=torch.tensor([text[:-1]])).last_hidden_state[:, -1:]
            yield [self.after(model, state, [text[-1], *(tokens[i] for i in ancestry(node))])
                   for node in range(-1, len(tokens))]

    def after(self, model, state, path):
        padded = torch.tensor([path + [0] * (self.HEADS - len(path))])
        return model(state, padded)[len(path) - 1, 0, 0]


class MlpSpeculatorTied(MlpSpeculator):
    """tie_weights with the tied tensors stored once, inner_dim 0, scale_input."""

    TIED, SCALED, INNER = True, True, 0
    MISTAKES = ("weight", "mean", "unscaled")

    def save(self, directory):
        for i in range(1, self.HEADS):
            for kind in ("emb", "head", "ln"):
                self.files.pop(f"speculator.{kind}.{i}.bias", None)
                self.files.pop(f"speculator.{kind}.{i}.weight", None)
            if i > 1:
                self.files.pop(f"speculator.proj.{i}.weight")
        super().save(directory)

    def state(self, text, mistake=None):
        normed = self.target.features(text[:-1])[1][-1]
        return normed if mistake == "unscaled" else super().state(text)


class MlpSpeculatorTiedTwice(MlpSpeculator):
    """tie_weights with every tensor stored under each of its names, without the prefix, and no scale_input."""

    TIED = True

    def save(self, directory):
        self.files = {name.removeprefix("speculator."): value for name, value in self.files.items()}
        super().save(directory)


class ArcticMlp(MlpSpeculator):
    """Snowflake's of the first kind: IBM's layout and formula under another architecture, here with scale_input."""

    SCALED, HEADS = True, 3
    MAX_DEPTH = HEADS - 1
    MISTAKES = ("weight", "mean", "unscaled")

    def build(self):
        super().build()
        self.config.update(architectures=["ArcticMLPSpeculatorPreTrainedModel"], model_type="mlp_speculator")

    def state(self, text, mistake=None):
        normed = self.target.features(text[:-1])[1][-1]
        return normed if mistake == "unscaled" else super().state(text)


class Arctic(Head):
    """What Snowflake's later kinds share. The reference is generate_states of its class, for which vLLM need not be
    there; the modules around it are put together here as its __init__ does."""

    HEADS, INNER = 4, 36
    MAX_DEPTH = HEADS - 1

    def build(self):
        self.config = {"architectures": [self.ARCHITECTURE], "model_type": "mlp_speculator", "base_model_archs":
                       ["LlamaForCausalLM"], "input_hidden_dim": HIDDEN, "inner_dim": str(self.INNER), "proj_dim":
                       str(self.INNER), "emb_dim": str(self.INNER), "n_predict": self.HEADS, "vocab_size": VOCAB,
                       "method": self.METHOD, "tie_weights": self.TIED, "tie_lstm_embs": self.METHOD == "sum_lstm",
                       "scale_input": True, "n_candidates": 1, "top_k_tokens_per_head": [1] * self.HEADS,
                       "torch_dtype": "float16"}
        self.tensors()

    def start(self, text, mistake):
        inputs, normed = self.target.features(text[:-1])
        s = (inputs[-1] if mistake == "unnormed" else normed)[-1]
        return s if mistake == "unscaled" else rms(s, eps=1e-6) / math.sqrt(2)

    def weight(self):
        share = 0.5 ** (0.5 / self.HEADS)
        return math.sqrt((1 - share ** 2) * self.INNER / 2) / share

    def head_index(self, i):
        return 0 if self.TIED else i

    def affine_rms(self, name, x):
        return rms(x, eps=1e-6) * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def reference(self, rounds):
        file = "ArcticInference/arctic_inference/vllm/spec_dec/arctic_speculator.py"
        norm_class = source_class(file, "MLPSpeculatorLayerNorm", USE_CUSTOM_OP=False)
        anything = type("Anything", (), {})
        model_class = source_class(file, "ArcticLSTMSpeculator", USE_CUSTOM_OP=False, SpeculatorTPInit=anything,
                                   VllmConfig=anything, SamplerOutput=anything, Iterable=list, Tuple=tuple,
                                   SQRT2=2 ** 0.5)
        model = model_class.__new__(model_class)
        torch.nn.Module.__init__(model)
        model.tie_weights, model.tie_lstm_embs, model.scale_input = self.TIED, True, True
        model.method, model.proj_dim = self.METHOD, [self.INNER]
        model.state_weight = 0.5 ** (0.5 / self.HEADS)
        model.emb_weight = math.sqrt((1 - model.state_weight ** 2) * (self.INNER / 2))
        model.activation = torch.nn.GELU()
        model.ln0 = norm_class(HIDDEN, elementwise_scale_and_shift=False)
        self.add_modules(model, norm_class)
        weights = self.float32()
        model.load_state_dict(self.as_loaded({name: value for name, value in weights.items() if "head." not in name}))
        for text, tokens in rounds:
            feature = self.target.model.model(input_ids=torch.tensor([text[:-1]])).last_hidden_state[:, -1:]
            rows = []
            for node in range(-1, len(tokens)):
                states, cell = feature, torch.zeros(1, 1, self.INNER)
                for i, token in enumerate([text[-1], *(tokens[j] for j in ancestry(node))]):
                    out = model.generate_states(torch.tensor([[token]]), states, i, cell)
                    states, cell = out if self.METHOD == "sum_lstm" else (out, cell)
                rows.append(weights[f"head.{self.head_index(i)}.weight"] @ states[0, 0])
            yield rows


class ArcticLstm(Arctic):
    """sum_lstm: one LSTM cell for all tokens; the cell begins at zero with each proposal. The file holds the gates'
    matrices apart and copies of the one table."""

    ARCHITECTURE, METHOD, TIED = "ArcticLSTMSpeculatorPreTrainedModel", "sum_lstm", True
    MISTAKES = ("unnormed", "unscaled", "weight", "gates", "cell kept")
    GATES = ("forget", "input", "output", "cell")  # in the order in which they are joined

    def tensors(self):
        table = self.normal(VOCAB, self.INNER, scale=1.0)
        for gate in self.GATES:
            self.files[f"{gate}_emb.0.weight"] = table
            self.files[f"{gate}_proj.0.weight"] = self.normal(self.INNER, HIDDEN)
            self.files[f"{gate}_proj.1.weight"] = self.normal(self.INNER, self.INNER)
        for name in ("cell_ln", "state_ln"):
            self.files[f"{name}.0.weight"] = self.norm_weight(self.INNER)
            self.files[f"{name}.0.bias"] = self.normal(self.INNER, scale=0.3)
        self.files["head.0.weight"] = self.normal(VOCAB, self.INNER, scale=0.8)

    def save(self, directory):
        write_safetensors(self.files, directory / "model.safetensors")

    def logits(self, text, path, mistake=None, accepted=0):
        w, s = self.weights, self.start(text, mistake)
        cell = torch.ones(self.INNER) if mistake == "cell kept" else torch.zeros(self.INNER)
        for i, token in enumerate([text[-1], *path]):
            e = (1 if mistake == "weight" else self.weight()) * w["forget_emb.0.weight"][token]
            f, into, out, c = (w[f"{gate}_proj.{min(i, 1)}.weight"] @ s + e for gate in self.GATES)
            if mistake == "gates":
                out, c = c, out
            cell = cell * f.sigmoid() + gelu(self.affine_rms("cell_ln.0", c)) * into.sigmoid()
            s = gelu(self.affine_rms("state_ln.0", cell)) * out.sigmoid()
        return w["head.0.weight"] @ s

    def add_modules(self, model, norm_class):
        model.forget_emb = torch.nn.ModuleList([torch.nn.Embedding(VOCAB, self.INNER)])
        model.projs = torch.nn.ModuleList(torch.nn.Linear(width, 4 * self.INNER, bias=False)
                                          for width in (HIDDEN, self.INNER))
        model.cell_ln, model.state_ln = (torch.nn.ModuleList([norm_class(self.INNER)]) for _ in range(2))

    def as_loaded(self, weights):
        """As load_weights joins them."""
        for i in range(2):
            weights[f"projs.{i}.weight"] = torch.cat([weights.pop(f"{gate}_proj.{i}.weight") for gate in self.GATES])
        for gate in self.GATES[1:]:
            weights.pop(f"{gate}_emb.0.weight")
        return weights


class ArcticRnn(Arctic):
    """sum_rnn: the MLP speculator's formula with modules in sequences of one, untied."""

    ARCHITECTURE, METHOD, TIED = "MLPVariantSpeculatorPreTrainedModel", "sum_rnn", False
    MISTAKES = ("unnormed", "unscaled", "weight")

    def tensors(self):
        for i in range(self.HEADS):
            self.files[f"emb.{i}.0.weight"] = self.normal(VOCAB, self.INNER, scale=1.0)
            self.files[f"proj.{i}.0.weight"] = self.normal(self.INNER, self.INNER if i else HIDDEN)
            self.files[f"ln.{i}.0.weight"] = self.norm_weight(self.INNER)
            self.files[f"ln.{i}.0.bias"] = self.normal(self.INNER, scale=0.3)
            self.files[f"head.{i}.weight"] = self.normal(VOCAB, self.INNER, scale=0.4)

    def logits(self, text, path, mistake=None, accepted=0):
        w, s = self.weights, self.start(text, mistake)
        for i, token in enumerate([text[-1], *path]):
            e = (1 if mistake == "weight" else self.weight()) * w[f"emb.{i}.0.weight"][token]
            s = gelu(self.affine_rms(f"ln.{i}.0", w[f"proj.{i}.0.weight"] @ s + e))
        return w[f"head.{i}.weight"] @ s

    def add_modules(self, model, norm_class):
        def sequences(make):
            return torch.nn.ModuleList(torch.nn.Sequential(make(i)) for i in range(self.HEADS))

        model.emb = sequences(lambda i: torch.nn.Embedding(VOCAB, self.INNER))
        model.proj = sequences(lambda i: torch.nn.Linear(self.INNER if i else HIDDEN, self.INNER, bias=False))
        model.ln = sequences(lambda i: norm_class(self.INNER))

    def as_loaded(self, weights):
        return weights


class Hydra(Head):
    """Hydra's MLP heads: head i reads the last feature and the embeddings (the target's) of the tokens since. The
    reference is the repository's class, whose training pass takes the tokens as given."""

    MISTAKES = ("unnormed", "own token", "no residual", "order")
    HEADS, BLOCKS, ARCHITECTURE, CLASS = 4, 2, "mlp", "HydraMLP"
    OFFSET = 0  # 1: the output of the layer before the last, as transformers' hidden_states[-2]
    FILE = "Hydra/hydra/model/hydra_heads/mlp_head.py"
    MAX_DEPTH = HEADS - 1

    def build(self):
        self.config = {"base_model_name_or_path": "../target", "grounded_heads": True, "hidden_state_offset": self.OFFSET,
                       "hydra_head_arch": self.ARCHITECTURE, "hydra_num_heads": self.HEADS,
                       "hydra_num_layers": self.BLOCKS, "transformers_version": "4.34.1"}
        for i in range(self.HEADS):
            width = (i + 2) * HIDDEN
            for part in ("linear", "res_connection"):
                name = f"hydra_mlp.{i}.{self.block_index(0)}.{part}"
                self.files[name + ".weight"] = self.normal(HIDDEN, width)
                self.files[name + ".bias"] = self.normal(HIDDEN, scale=0.3)
            shared = self.normal(HIDDEN, HIDDEN), self.normal(HIDDEN, scale=0.3)  # one module
            for j in range(1, self.BLOCKS):
                name = f"hydra_mlp.{i}.{self.block_index(j)}.linear"
                self.files[name + ".weight"], self.files[name + ".bias"] = shared
            self.files[self.output(i) + ".weight"] = self.normal(VOCAB, HIDDEN)
            self.files[self.output(i) + ".bias"] = self.normal(VOCAB, scale=0.5)
        self.files["input_embed_fn.weight"] = self.target.model.get_input_embeddings().weight.detach().clone()

    def block_index(self, j):
        return j

    def output(self, i):
        return f"hydra_lm_head.{i}"

    def save(self, directory):
        write_torch_file(self.files, directory / "hydra_lm_head.pt")

    def feature(self, text, mistake):
        inputs, normed = self.target.features(text[:-1])
        return (inputs[-1] if mistake == "unnormed" else normed)[-1]

    def logits(self, text, path, mistake=None, accepted=0):
        tokens = [text[-2 if mistake == "own token" else -1], *path]
        i = len(path)
        parts = [self.feature(text, mistake), *self.target.embeddings[torch.tensor(tokens)]]
        x = torch.cat(parts[::-1] if mistake == "order" else parts)
        for j in range(self.BLOCKS):
            name = f"hydra_mlp.{i}.{self.block_index(j)}"
            kept = x if j else linear(self.weights, name + ".res_connection", x)
            x = (0 if mistake == "no residual" and j else kept) + silu(linear(self.weights, name + ".linear", x))
        return linear(self.weights, self.output(i), x)

    def reference_model(self):
        block_class = source_class(self.FILE, "ResBlock")
        model = source_class(self.FILE, self.CLASS, ResBlock=block_class, LlamaModel=transformers.LlamaModel,
                             deepcopy=copy.deepcopy)(
            self.BLOCKS, self.HEADS, True, torch.nn.Embedding(VOCAB, HIDDEN), self.target.config)
        model.load_state_dict({name: value for name, value in self.float32().items() if "inv_freq" not in name})
        return model.eval()

    def reference(self, rounds):
        model = self.reference_model()
        for text, tokens in rounds:
            known = self.target.model.model(input_ids=torch.tensor([text[:-1]]), output_hidden_states=True)
            known = known.hidden_states[-(self.OFFSET + 1)]
            rows = []
            for node in range(-1, len(tokens)):
                path = [tokens[i] for i in ancestry(node)]
                features = torch.cat([known, torch.zeros(1, 1 + len(path), HIDDEN)], 1)
                logits, _ = model(features, input_ids=torch.tensor([text + path]))
                rows.append(logits[len(path)][0, len(text) - 2])
            yield rows


class HydraOffset(Hydra):
    """Heads that read the output of an earlier layer, raw; one block each."""

    MISTAKES = ("normed", "layer", "own token", "order")
    OFFSET, BLOCKS = 2, 1

    def feature(self, text, mistake):
        inputs, _ = self.target.features(text[:-1])
        x = inputs[-1 - self.OFFSET + (mistake == "layer")][-1]
        return rms(x, self.target.weights["model.norm.weight"], self.target.shape.eps) if mistake == "normed" else x


class HydraPrefix(Hydra):
    """Hydra++: a Llama layer over the features of all tokens read so far, with its norms, before the heads."""

    MISTAKES = (*Hydra.MISTAKES, "no prefix", "no final norm", "last feature alone")
    BLOCKS, ARCHITECTURE, CLASS = 3, "prefix-mlp", "HydraPrefixMLP"
    FILE = "Hydra/hydra/model/hydra_heads/prefix_mlp_head.py"
    PREFIX = "prefix_embeding_layer"

    def build(self):
        super().build()
        self.shape = self.target.shape
        self.layer(f"{self.PREFIX}.layers.0", self.shape, inner=self.target.config.intermediate_size)
        self.files[f"{self.PREFIX}.layers.0.input_layernorm.weight"] = self.norm_weight()
        self.files[f"{self.PREFIX}.layers.0.self_attn.rotary_emb.inv_freq"] = (
            self.shape.theta ** -(torch.arange(0, self.shape.head_dim, 2) / self.shape.head_dim))
        self.files[f"{self.PREFIX}.norm.weight"] = self.norm_weight()
        self.files[f"{self.PREFIX}.embed_tokens.weight"] = self.normal(VOCAB, HIDDEN)  # unused

    def block_index(self, j):
        return 2 * j + 1  # dropout is at the even ones

    def output(self, i):
        return f"hydra_lm_head.{i}.1"

    def feature(self, text, mistake):
        inputs, normed = self.target.features(text[:-1])
        x = inputs[-1] if mistake == "unnormed" else normed
        x = x[-1:] if mistake == "last feature alone" else x
        if mistake == "no prefix":
            return x[-1]
        x = block(self.weights, f"{self.PREFIX}.layers.0", self.shape, x, torch.arange(len(x)))[-1]
        return x if mistake == "no final norm" else rms(x, self.weights[f"{self.PREFIX}.norm.weight"], self.shape.eps)


class Dflash(Head):
    """DFlash: a block of the last token and masks, every slot seeing the whole block and the projected features of
    all tokens before it; slot i predicts its own token. The reference is the repository's class with its cache, from
    which each round's block is cropped."""

    MISTAKES = ("layers", "normed context", "causal", "shifted", "no k_norm", "tokens")
    LAYER_IDS, BLOCK, MASK_TOKEN = [1, 3, 5], 5, VOCAB - 1  # outputs of these layers
    MAX_DEPTH = BLOCK - 2
    DTYPE = torch.bfloat16

    def build(self):
        self.shape = Shape(heads=4, kv_heads=2, head_dim=12, eps=1e-6, theta=5000.0)
        self.config = llama_config(
            architectures=["DFlashDraftModel"], model_type="qwen3", block_size=self.BLOCK, num_hidden_layers=2,
            head_dim=self.shape.head_dim, rms_norm_eps=self.shape.eps, rope_theta=self.shape.theta, rope_scaling=None,
            dflash_config={"mask_token_id": self.MASK_TOKEN, "target_layer_ids": self.LAYER_IDS},
            num_target_layers=LAYERS, layer_types=["full_attention"] * 2, attention_bias=False, sliding_window=None,
            use_sliding_window=False, dtype="bfloat16")
        self.files["fc.weight"] = self.normal(HIDDEN, len(self.LAYER_IDS) * HIDDEN)
        self.files["hidden_norm.weight"], self.files["norm.weight"] = self.norm_weight(), self.norm_weight()
        for i in range(2):
            self.layer(f"layers.{i}", self.shape)
            self.files[f"layers.{i}.input_layernorm.weight"] = self.norm_weight()
            for name in ("q", "k"):
                self.files[f"layers.{i}.self_attn.{name}_norm.weight"] = self.norm_weight(self.shape.head_dim)

    def features(self, text, mistake=None):
        inputs, _ = self.target.features(text[:-1])
        return torch.cat([inputs[i + (mistake != "layers")] for i in self.LAYER_IDS], -1)

    def logits(self, text, path, mistake=None, accepted=0):
        w, shape = self.weights, self.shape
        context = rms(linear(w, "fc", self.features(text, mistake)), w["hidden_norm.weight"], shape.eps)
        block_tokens = [text[-1], *[self.MASK_TOKEN] * (self.BLOCK - 1)]
        if mistake == "tokens":
            block_tokens[1:1 + len(path)] = path
        x = self.target.embeddings[torch.tensor(block_tokens)]
        n = len(context)
        positions = torch.arange(n + self.BLOCK)
        hidden_keys = torch.zeros(self.BLOCK, n + self.BLOCK, dtype=torch.bool)
        if mistake == "causal":
            hidden_keys[:, n:] = torch.ones(self.BLOCK, self.BLOCK, dtype=torch.bool).triu(1)
        for i in range(2):
            name = f"layers.{i}.self_attn"
            norm = w[f"layers.{i}.input_layernorm.weight"]
            y = rms(x, norm, shape.eps)
            keys = torch.cat([rms(context, norm, shape.eps) if mistake == "normed context" else context, y])
            q = rms(split_heads(linear(w, name + ".q_proj", y), shape.heads), w[name + ".q_norm.weight"], shape.eps)
            k, v = (split_heads(linear(w, f"{name}.{each}_proj", keys), shape.kv_heads) for each in "kv")
            if mistake != "no k_norm":
                k = rms(k, w[name + ".k_norm.weight"], shape.eps)
            attended = attend(rotate(q, positions[n:], shape.theta), rotate(k, positions, shape.theta), v, hidden_keys)
            x = x + linear(w, name + ".o_proj", attended)
            x = x + gated_mlp(w, f"layers.{i}.mlp", rms(x, w[f"layers.{i}.post_attention_layernorm.weight"], shape.eps))
        slot = len(path) + (mistake != "shifted")
        return self.predict(rms(x[slot], w["norm.weight"], shape.eps), mistake)

    def predict(self, state, mistake=None):
        return self.target.head @ state

    def reference(self, rounds):
        fields = {name: value for name, value in self.config.items() if name not in ("model_type", "architectures")}
        config = transformers.Qwen3Config(**fields)
        config._attn_implementation = "eager"
        model = importlib.import_module("dflash.model").DFlashDraftModel(config)
        model.load_state_dict(self.float32())
        model.eval()
        cache, length = transformers.DynamicCache(), 0
        for text, tokens in rounds:
            out = model(target_hidden=self.features(text)[length:].float()[None],
                        noise_embedding=self.target.model.model.embed_tokens(
                            torch.tensor([[text[-1], *[self.MASK_TOKEN] * (self.BLOCK - 1)]])),
                        position_ids=torch.arange(length, len(text) - 1 + self.BLOCK)[None], past_key_values=cache,
                        use_cache=True, is_causal=False)
            length = len(text) - 1
            cache.crop(-self.BLOCK)  # its entries
            rows = self.target.model.lm_head(out[0, 1:])
            yield [rows[depth] for depth in [0, *DEPTH[:len(tokens)]]]


class DflashSpeculators(Dflash):
    """DFlash as speculators writes it: a smaller vocabulary with a matrix for its logits, ids of layers that count from
    the embedding. The reference is its training pass with one block, at the last token."""

    MISTAKES = ("layers", "normed context", "causal", "shifted", "no k_norm", "tokens", "d2t as ids")
    DRAFT_VOCAB, BLOCK = 67, 4
    LAYER_IDS = [2, 4, 7]  # outputs of so many layers
    MAX_DEPTH = BLOCK - 2

    def build(self):
        super().build()
        speculators = importlib.import_module("speculators")
        fields = {name: value for name, value in self.config.items()
                  if name not in ("architectures", "block_size", "dflash_config", "num_target_layers", "dtype")}
        layers = transformers.Qwen3Config(**fields)
        layers._attn_implementation = "eager"
        self.settings = importlib.import_module("speculators.models.dflash").DFlashSpeculatorConfig(
            transformer_layer_config=layers, draft_vocab_size=self.DRAFT_VOCAB, block_size=self.BLOCK,
            aux_hidden_state_layer_ids=self.LAYER_IDS, mask_token_id=self.MASK_TOKEN,
            speculators_config=speculators.SpeculatorsConfig(
                algorithm="dflash", default_proposal_method="greedy",
                proposal_methods=[importlib.import_module("speculators.proposals.greedy").GreedyTokenProposalConfig(
                    speculative_tokens=self.BLOCK - 1)],
                verifier=speculators.VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"])))
        self.config = json.loads(self.settings.to_json_string(use_diff=False))
        known = torch.randperm(VOCAB, generator=self.generator)[:self.DRAFT_VOCAB].sort().values
        self.files["d2t"] = known - torch.arange(self.DRAFT_VOCAB)
        self.files["t2d"] = torch.zeros(VOCAB, dtype=torch.bool)
        self.files["t2d"][known] = True
        self.files["lm_head.weight"] = self.normal(self.DRAFT_VOCAB, HIDDEN)

    def known(self):
        return (self.files["d2t"] + torch.arange(self.DRAFT_VOCAB)).tolist()

    def features(self, text, mistake=None):
        inputs, _ = self.target.features(text[:-1])
        return torch.cat([inputs[i - (mistake == "layers")] for i in self.LAYER_IDS], -1)

    def predict(self, state, mistake=None):
        full = torch.full((VOCAB,), math.nan, dtype=torch.float64)
        full[self.files["d2t"] if mistake == "d2t as ids" else self.known()] = self.weights["lm_head.weight"] @ state
        return full

    def reference(self, rounds):
        core = importlib.import_module("speculators.models.dflash.core")
        core.create_float_mask = functools.partial(core.create_float_mask, dtype=torch.float32)
        model = core.DFlashDraftModel(self.settings)
        model.load_state_dict({"embed_tokens.weight": self.target.embeddings.float(),
                               "verifier_lm_head.weight": self.float32()["lm_head.weight"],
                               "verifier_norm.weight": torch.ones(HIDDEN), **self.float32()})
        model.eval()
        for text, tokens in rounds:
            n = len(text)
            core.select_anchors = lambda *_: (torch.tensor([n - 1]), torch.tensor([True]))  # noqa: B023
            features = torch.cat([self.features(text).float(), torch.zeros(self.BLOCK, len(self.LAYER_IDS) * HIDDEN)])
            out = model._backbone_forward(
                features[None], torch.tensor([text + [0] * (self.BLOCK - 1)]), torch.ones(1, len(features)),
                torch.zeros(1, len(features), HIDDEN), torch.zeros(1, len(features), dtype=torch.long), max_anchors=1)
            full = torch.full((self.BLOCK, VOCAB), math.nan)
            full[:, self.known()] = out[1][0]
            yield [full[1 + depth] for depth in [0, *DEPTH[:len(tokens)]]]


class Blockwise(Head):
    """Blockwise parallel decoding: heads.i maps the feature of the last token that the target has read to the token i
    positions behind it. Nobody has published one, and the paper's code is not torch's: the reference is the paper's
    layer, of torch's modules."""

    MISTAKES = ("unnormed", "next head", "no residual", "activated output")
    BLOCK, INNER = 5, 40
    MAX_DEPTH = BLOCK - 2

    def build(self):
        self.config = {"model_type": "blockwise", "base_model_name_or_path": "../target", "block_size": self.BLOCK,
                       "hidden_size": HIDDEN, "intermediate_size": self.INNER, "hidden_act": "relu"}
        for i in range(2, self.BLOCK + 1):
            for name, rows, columns in ("hidden", self.INNER, HIDDEN), ("output", HIDDEN, self.INNER):
                self.files[f"heads.{i}.{name}.weight"] = self.normal(rows, columns)
                self.files[f"heads.{i}.{name}.bias"] = self.normal(rows, scale=0.5)

    def logits(self, text, path, mistake=None, accepted=0):
        inputs, normed = self.target.features(text[:-1])
        x = (inputs[-1] if mistake == "unnormed" else normed)[-1]
        i = min(2 + len(path) + (mistake == "next head"), self.BLOCK)
        y = linear(self.weights, f"heads.{i}.output", linear(self.weights, f"heads.{i}.hidden", x).relu())
        y = y.relu() if mistake == "activated output" else y
        return self.target.head @ (y if mistake == "no residual" else x + y)

    def reference(self, rounds):
        heads = torch.nn.ModuleDict({
            str(i): torch.nn.ModuleDict({"hidden": torch.nn.Linear(HIDDEN, self.INNER),
                                         "output": torch.nn.Linear(self.INNER, HIDDEN)})
            for i in range(2, self.BLOCK + 1)})
        heads.load_state_dict({name.removeprefix("heads."): weight for name, weight in self.float32().items()})
        for text, tokens in rounds:
            feature = self.target.model.model(input_ids=torch.tensor([text[:-1]])).last_hidden_state[0, -1]
            modules = [heads[str(2 + depth)] for depth in [0, *DEPTH[:len(tokens)]]]
            yield [self.target.model.lm_head(feature + each["output"](torch.relu(each["hidden"](feature))))
                   for each in modules]


class Falcon(Head):
    """Falcon: rows of K see one another, the last K draft as many tokens, and behind these K rows with the states of
    the K before them as many again. Blocks begin at the first row of each round's pass, which reads K - 1 rows again
    where fewer than K are new. The reference is the repository's class with its cache and masks; it passes on all that
    torch's LSTM returns, of which its layers can take the output alone."""

    MISTAKES = ("causal", "blocks of the text", "hidden first", "unnormed", "final norm", "input norm", "swapped",
                "one state", "carried state", "order of gates", "one bias")
    TREE = [-1, -1, 0, 0, 1, 2, 4, 5, 5, 6, 7]
    ACCEPTED = [[0, 2], [1, 4, 6], [], [1]]
    MAX_DEPTH, K = 5, 2

    def build(self):
        self.shape, self.lengths = HEAD_SHAPE, []
        self.config = llama_config(num_hidden_layers=2, k_mask=self.K, qkv_bias=True)
        self.files["embed_tokens.weight"] = self.target.model.model.embed_tokens.weight.detach().clone()
        for i, inputs in enumerate([2 * HIDDEN, HIDDEN]):
            self.files[f"lstm.weight_ih_l{i}"] = self.normal(4 * HIDDEN, inputs, scale=2 / math.sqrt(inputs))
            self.files[f"lstm.weight_hh_l{i}"] = self.normal(4 * HIDDEN, HIDDEN)
            self.files[f"lstm.bias_ih_l{i}"] = self.normal(4 * HIDDEN, scale=0.5)
            self.files[f"lstm.bias_hh_l{i}"] = self.normal(4 * HIDDEN, scale=0.5)
            self.layer(f"layers.{i}", self.shape, bias=True)
        self.files["layers.1.input_layernorm.weight"] = self.norm_weight()

    def save(self, directory):
        write_torch_file(self.files, directory / "pytorch_model.bin")

    def ends(self, n, mistake):
        """Behind the last row that each of the n of a text sees, by the rounds so far."""
        if n not in self.lengths:
            self.lengths.append(n)
        ends, before = [], 0
        for length in self.lengths[:self.lengths.index(n) + 1]:
            first = before if length - before >= self.K else before - (self.K - 1)
            ends[first:] = [min(length, first + ((row - first) // self.K + 1) * self.K) for row in range(first, length)]
            before = length
        if mistake == "blocks of the text":
            ends = [min(n, (row // self.K + 1) * self.K) for row in range(n)]
        return list(range(1, n + 1)) if mistake == "causal" else ends

    def cell(self, number, x, mistake):
        w, h, c, outputs = self.weights, torch.zeros(HIDDEN).double(), torch.zeros(HIDDEN).double(), []
        for row in x:
            gates = w[f"lstm.weight_ih_l{number}"] @ row + w[f"lstm.bias_ih_l{number}"]
            if mistake != "one bias":
                gates = gates + w[f"lstm.bias_hh_l{number}"]
            if mistake == "carried state":
                gates = gates + w[f"lstm.weight_hh_l{number}"] @ h
            i, f, g, o = gates.chunk(4)
            if mistake == "order of gates":
                g, o = o, g
            c = i.sigmoid() * g.tanh() + (f.sigmoid() * c if mistake == "carried state" else 0)
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs)

    def forward(self, h, tokens, ends, mistake):
        w, e = self.weights, self.target.embeddings[torch.tensor(tokens)]
        x = torch.cat([h, e] if mistake == "hidden first" else [e, h], -1)
        x = self.cell(1, self.cell(0, x, mistake), mistake)
        positions = torch.arange(len(x))
        hidden_keys = positions[None] >= torch.tensor(ends)[:, None]
        for i in range(2):
            name, y = f"layers.{i}", x
            if i > 0:
                y = rms(x, w[f"{name}.input_layernorm.weight"], self.shape.eps)
            elif mistake == "input norm":
                y = rms(x)
            q, k, v = (split_heads(linear(w, f"{name}.self_attn.{each}_proj", y), heads)
                       for each, heads in (("q", self.shape.heads), ("k", self.shape.kv_heads),
                                           ("v", self.shape.kv_heads)))
            q, k = rotate(q, positions, self.shape.theta), rotate(k, positions, self.shape.theta)
            x = x + linear(w, f"{name}.self_attn.o_proj", attend(q, k, v, hidden_keys))
            x = x + gated_mlp(w, f"{name}.mlp", rms(x, w[f"{name}.post_attention_layernorm.weight"], self.shape.eps))
        return x

    def logits(self, text, path, mistake=None, accepted=0):
        inputs, normed = self.target.features(text[:-1])
        h, tokens = inputs[-1] if mistake == "unnormed" else normed, list(text[1:])
        ends = self.ends(len(h), mistake)
        x = self.forward(h, tokens, ends, mistake)
        for first in range(0, len(path) - self.K + 1, self.K):
            states = x[-1:].expand(self.K, -1) if mistake == "one state" else x[-self.K:]
            h, tokens = torch.cat([h, states]), tokens + path[first:first + self.K]
            n = len(tokens)
            ends = ends + (list(range(n - self.K + 1, n + 1)) if mistake == "causal" else [n] * self.K)
            x = self.forward(h, tokens, ends, mistake)
        row = len(path) % self.K
        state = x[-self.K + (self.K - 1 - row if mistake == "swapped" else row)]
        return self.target.head @ (rms(state) if mistake == "final norm" else state)

    def reference(self, rounds):
        nets = importlib.import_module("models.cnets")
        config = nets.FConfig(**self.config)
        config.rope_scaling = None
        model = nets.Model(config)
        model.load_state_dict(self.float32())
        model.eval()
        lstm = model._modules.pop("lstm")
        model.lstm = lambda x: lstm(x)[0]
        head, k, cache, before = self.target.head.float(), self.K, None, 0
        for text, tokens in rounds:
            model.reset()
            n = len(text) - 1
            hidden = self.target.model.model(input_ids=torch.tensor([text[:-1]])).last_hidden_state
            if cache is not None and n - before < k:
                cache = [[each[:, :, :1 - k] for each in layer] for layer in cache]
                before -= k - 1
            out, cache = model(hidden[:, before:], torch.tensor([text[1 + before:]]), past_key_values=cache,
                               use_cache=True)
            before, past = n, cache
            rows = [head @ out[0, -k]]
            states = {-1: out[0, -k:]}  # by the node that a block ends with
            seen = {-1: []}  # rows of the tree that a block sees
            for depth in range(1, self.MAX_DEPTH + 1):
                level = [node for node in range(len(tokens)) if len(ancestry(node, self.TREE)) == depth]
                if depth % k == 0:
                    base, first = past[0][0].shape[2] - n, {}
                    for i, node in enumerate(level):
                        behind = ([-1] + ancestry(node, self.TREE))[-1 - k]
                        seen[node] = seen[behind] + list(range(base + i * k, base + i * k + k))
                        first[node] = states[behind]
                    mask = torch.zeros(1, 1, len(level) * k, base + len(level) * k)
                    for i, node in enumerate(level):
                        mask[0, 0, i * k:i * k + k, seen[node]] = 1
                    model.tree_mask = mask
                    ids = [tokens[each] for node in level for each in ancestry(node, self.TREE)[-k:]]
                    positions = [n + depth - k + j for _ in level for j in range(k)]
                    out, past = model(torch.cat([first[node] for node in level])[None], torch.tensor([ids]),
                                      position_ids=torch.tensor([positions]), past_key_values=past, use_cache=True)
                    for i, node in enumerate(level):
                        states[node] = out[0, i * k:i * k + k]
                for node in level:
                    behind = ([-1] + ancestry(node, self.TREE))[-1 - depth % k]
                    rows.append(head @ states[behind][depth % k])
            yield rows


class Qwen35Mtp(QwenMtp):
    """Without experts, in a target that reads images too."""

    MODULE, PREFIX = "qwen3_5", "Qwen3_5"


def source_class(file, name, **names):
    """A class of a checkout without its module, which asks for older packages."""
    source = (SOURCES / file).read_text()
    tree = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name)
    names = {"nn": torch.nn, "torch": torch, "F": torch.nn.functional, "math": math, "List": list, **names}
    exec(ast.get_source_segment(source, tree), names)
    return names[name]


# ---- writing ----

SOURCES = None  # checkouts of the authors' repositories
CLASSES = {
    "eagle3": Eagle3, "eagle": Eagle1, "eagle-no-bias": Eagle1WithoutBias,
    "eagle3-speculators": Eagle3Speculators, "eagle31": Eagle31, "eagle31-fc-norm": Eagle31FcNorm, "peagle": Peagle,
    "mimo": MimoMtp, "deepseek-mtp": DeepseekMtp, "glm-mtp": DeepseekMtp,
    "medusa": Medusa, "medusa-two-blocks": MedusaTwoBlocks, "medusa-blocks-only": MedusaBlocksOnly,
    "medusa-vllm": MedusaVllm,
    "mlp-speculator": MlpSpeculator, "mlp-speculator-tied": MlpSpeculatorTied,
    "mlp-speculator-tied-twice": MlpSpeculatorTiedTwice,
    "arctic-mlp": ArcticMlp, "arctic-lstm": ArcticLstm, "arctic-rnn": ArcticRnn,
    "hydra": Hydra, "hydra-prefix": HydraPrefix, "dflash": Dflash, "peagle-two-layers": PeagleTwoLayers,
    "hydra-offset": HydraOffset, "dflash-speculators": DflashSpeculators, "qwen3-next-mtp": QwenMtp,
    "blockwise": Blockwise, "falcon": Falcon, "qwen3-5-mtp": Qwen35Mtp,
}


def randomised(model, draws):
    family = model.config.model_type if hasattr(model, "config") else ""
    with torch.no_grad():
        for key, weight in [*model.named_parameters(), *model.named_buffers()]:
            if weight.dim() >= 2:
                weight.copy_(draws.normal(weight.shape, 1 / math.sqrt(weight.shape[-1])))
            elif key.endswith("bias"):
                weight.copy_(draws.normal(weight.shape, 0.3))
            elif key.endswith("weight"):
                weight.copy_(draws.uniform(weight.shape, 0.45, 0.05 if norms_around_0(family, key) else 1.05))
    return model


def stored_layer(weights):
    """A layer with experts under the names of files: each expert's matrices by themselves."""
    stored = {}
    for name, weight in weights.items():
        if name == "mlp.experts.gate_up_proj":
            for i, expert in enumerate(weight):
                for which, part in zip(("gate", "up"), expert.chunk(2)):
                    stored[f"mlp.experts.{i}.{which}_proj.weight"] = part.contiguous()
        elif name == "mlp.experts.down_proj":
            for i, expert in enumerate(weight):
                stored[f"mlp.experts.{i}.down_proj.weight"] = expert.contiguous()
        else:
            stored[name] = weight
    return stored


class ExpertsTarget(Target):
    """A model whose layers are transformers' own, in float64."""

    def __init__(self, model, name):
        super().__init__(model, name)
        self.model64 = copy.deepcopy(model).double()

    def features(self, tokens):
        kept, layers = [], self.model64.model.layers
        hooks = [layer.register_forward_pre_hook(lambda _, args: kept.append(args[0][0])) for layer in layers]
        hooks.append(layers[-1].register_forward_hook(lambda _, args, out: kept.append(out[0])))
        normed = self.model64.model(input_ids=torch.tensor([tokens]), use_cache=False).last_hidden_state[0]
        for hook in hooks:
            hook.remove()
        return kept, normed

    def stored(self, weights):
        named = {}
        for name, weight in weights.items():
            prefix, of_layer, rest = name.partition(".mlp.experts.")
            parts = stored_layer({"mlp.experts." + rest: weight}) if of_layer else {}
            named |= {f"{prefix}.{each}": part for each, part in parts.items()} if of_layer else {name: weight}
        return named


class NestedTarget(ExpertsTarget):
    """The text part of a model that reads images too."""

    def write(self, directory, fields=(), tensors=()):
        super().write(directory, fields, tensors)
        config = json.loads((directory / "config.json").read_text())
        write_json(directory / "config.json", nested_config({"dtype": "float32", **config}))

    def stored(self, weights):
        return nested_weights(super().stored(weights))


def make_experts_target(family, name, seed, kind=ExpertsTarget, **shapes):
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(
        family, vocab_size=VOCAB, hidden_size=HIDDEN, num_attention_heads=4, intermediate_size=52,
        max_position_embeddings=256, rms_norm_eps=1e-6, bos_token_id=0, eos_token_id=0, pad_token_id=0, dtype="float32",
        num_hidden_layers=2, num_experts_per_tok=2, moe_intermediate_size=20, tie_word_embeddings=False, **shapes)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    model.set_experts_implementation("eager")
    return kind(randomised(model, Draws(f"{name}/target")), name)


def make_target(model_class, config_class, name, seed, **shapes):
    torch.manual_seed(seed)
    config = config_class(vocab_size=VOCAB, hidden_size=HIDDEN, num_attention_heads=4, num_key_value_heads=2,
                          intermediate_size=52, max_position_embeddings=256, rms_norm_eps=1e-5, bos_token_id=0,
                          eos_token_id=0, pad_token_id=0, dtype="float32", attn_implementation="eager", **shapes)
    config.head_dim = HIDDEN // 4
    draws = Draws(f"{name}/target")
    model = randomised(model_class(config).eval(), draws)
    with torch.no_grad():
        table = model.get_input_embeddings().weight
        table.copy_(draws.uniform(table.shape, 2, 0))  # exact in 16 bits: heads with a copy of it have it exactly
    return Target(model, name)


def write_json(file, value):
    file.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


def ancestry(node, tree=TREE):
    """The node and its parents, the root left out."""
    return [] if node < 0 else [*ancestry(tree[node], tree), node]


def make_rounds(head, generator):
    """[(text, tokens of the tree's nodes), ...]; siblings differ; one token in three is the head's best."""
    count = sum(len(ancestry(node, head.TREE)) <= head.MAX_DEPTH for node in range(len(head.TREE)))
    known = torch.tensor(head.known())
    draw = lambda choices: choices[torch.randint(len(choices), (1,), generator=generator).item()]  # noqa: E731
    text = torch.randint(1, VOCAB, (PROMPT,), generator=generator).tolist()
    prompt, rounds = list(text), []
    text.append(target_best(head.target, text))
    for accepted in head.ACCEPTED:
        tokens = []
        for node in range(count):
            path = [tokens[i] for i in ancestry(head.TREE[node], head.TREE)]
            row = head.logits(text, path)[known]
            taken = {tokens[i] for i in range(node) if head.TREE[i] == head.TREE[node]}
            best = known[row.argmax()].item()
            tokens.append(best if node % 3 == 0 and best not in taken
                          else draw([token for token in known.tolist() if token not in taken]))
        rounds.append((list(text), tokens))
        accepted = [node for node in accepted if node < count]
        taken = {tokens[i] for i in range(count) if head.TREE[i] == (accepted[-1] if accepted else -1)}
        text = text + [tokens[node] for node in accepted]
        text.append(draw([token for token in range(1, VOCAB) if token not in taken]))
    return prompt, rounds


def target_best(target, tokens):
    return (target.features(tokens)[1][-1] @ target.head.T).argmax().item()


def check_mistakes(head, rounds, rows):
    """Returns the effect of each mistake on the logit that it changes most, over all rounds and nodes."""
    effects, before = {}, 0
    for mistake in head.MISTAKES:
        effect = 0.0
        for i, (text, tokens) in enumerate(rounds):
            accepted = len([node for node in head.ACCEPTED[i - 1] if node < len(tokens)]) if i else 0
            for node in range(-1, len(tokens)):
                wrong = head.logits(text, [tokens[j] for j in ancestry(node, head.TREE)], mistake, accepted)
                right = rows[i][node + 1]
                if not torch.equal(wrong.isnan(), right.isnan()):
                    effect = math.inf
                else:
                    effect = max(effect, (wrong - right).nan_to_num().abs().max().item())
        assert effect > SMALLEST_EFFECT, f"{head.name}: the mistake {mistake!r} changes logits by {effect:.2g} only"
        effects[mistake] = effect
    return effects


def numbers(row):
    return [None if value != value else round(value, 6) for value in row.tolist()]


def write_head(head, generator, directory):
    prompt, rounds = make_rounds(head, generator)
    rows = [[head.logits(text, [tokens[i] for i in ancestry(node, head.TREE)]) for node in range(-1, len(tokens))]
            for text, tokens in rounds]
    worst = 0.0
    for ours, theirs in zip(rows, head.reference(rounds), strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            assert torch.equal(mine.isnan(), other.isnan()), head.name
            worst = max(worst, (mine - other.double()).nan_to_num().abs().max().item() /
                        max(1.0, mine.nan_to_num().abs().max().item()))
    assert worst <= REFERENCE_BOUND, f"{head.name}: differs from the reference by {worst:.2g}"
    effects = check_mistakes(head, rounds, rows)
    directory.mkdir(parents=True, exist_ok=True)
    if head.config:
        write_json(directory / "config.json", head.config)
    head.save(directory)
    lines = [json.dumps({"n": len(text), "text": text, "root": numbers(row[0]),
                         "nodes": [{"parent": head.TREE[i], "token": token, "logits": numbers(row[i + 1])}
                                   for i, token in enumerate(tokens)]}, allow_nan=False, separators=(",", ":"))
             for (text, tokens), row in zip(rounds, rows)]
    (directory / "expected.json").write_text(
        f'{{"target": "{head.target.name}",\n "prompt": {json.dumps(prompt)},\n "rounds": [\n'
        + ",\n".join(lines) + "]}\n")
    print(f"{head.name}: {worst:.1g} from the reference; smallest effect of a mistake "
          + ", ".join(f"{name} {effect:.2g}" for name, effect in effects.items()), flush=True)


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=pathlib.Path, required=True)
    parser.add_argument("--only", nargs="+", choices=CLASSES, default=list(CLASSES))
    args = parser.parse_args()
    global SOURCES
    SOURCES = args.sources
    for name in ("EAGLE", "dflash", "Falcon"):
        sys.path.insert(0, str(args.sources / name))
    torch.set_num_threads(1)
    targets = {"target": make_target(transformers.LlamaForCausalLM, transformers.LlamaConfig, "target", 1,
                                     num_hidden_layers=LAYERS, tie_word_embeddings=False,
                                     rope_parameters={"rope_type": "default", "rope_theta": 1000.0})}
    targets["mimo"] = make_target(transformers.Qwen2ForCausalLM, transformers.Qwen2Config, "mimo", 3,
                                  num_hidden_layers=3, tie_word_embeddings=False,
                                  rope_parameters={"rope_type": "default", "rope_theta": 2000.0})
    late_experts = dict(first_k_dense_replace=1, n_routed_experts=6, n_shared_experts=1, routed_scaling_factor=1.5)
    targets["deepseek-mtp"] = make_experts_target(
        "deepseek_v3", "deepseek-mtp", 5, num_key_value_heads=4, q_lora_rank=12, kv_lora_rank=16, qk_nope_head_dim=12,
        qk_rope_head_dim=8, v_head_dim=16, n_group=2, topk_group=1, **late_experts,
        rope_parameters={"rope_type": "default", "rope_theta": 2000.0})
    targets["glm-mtp"] = make_experts_target(
        "glm4_moe", "glm-mtp", 6, num_key_value_heads=2, head_dim=8, attention_bias=True, n_group=1, topk_group=1,
        **late_experts,
        rope_parameters={"rope_type": "default", "rope_theta": 2000.0, "partial_rotary_factor": 0.5})
    targets["qwen3-next-mtp"] = make_experts_target(
        "qwen3_next", "qwen3-next-mtp", 7, num_key_value_heads=2, head_dim=16, linear_num_key_heads=4,
        linear_num_value_heads=8, linear_key_head_dim=12, linear_value_head_dim=16, num_experts=6,
        shared_expert_intermediate_size=28, layer_types=["linear_attention", "full_attention"],
        rope_parameters={"rope_type": "default", "rope_theta": 2000.0, "partial_rotary_factor": 0.25})
    targets["qwen3-5-mtp"] = make_experts_target(
        "qwen3_5_text", "qwen3-5-mtp", 8, NestedTarget, num_key_value_heads=2, head_dim=16, linear_num_key_heads=4,
        linear_num_value_heads=8, linear_key_head_dim=12, linear_value_head_dim=16, mtp_num_hidden_layers=1,
        layer_types=["linear_attention", "full_attention"],
        rope_parameters={"rope_type": "default", "rope_theta": 2000.0, "partial_rotary_factor": 0.25,
                         "mrope_section": [1, 1, 0], "mrope_interleaved": True})
    for target in targets.values():
        target.check(torch.randint(1, VOCAB, (40,), generator=torch.Generator().manual_seed(2)).tolist())
    targets["target"].write(HEADS / "target")
    for seed, name in enumerate(CLASSES):
        if name in args.only:
            shutil.rmtree(HEADS / name, ignore_errors=True)
            generator = torch.Generator().manual_seed(100 + seed)
            write_head(CLASSES[name](name, targets.get(name, targets["target"]), generator), generator, HEADS / name)


if __name__ == "__main__":
    main()
