"""Writes quantized/: tiny checkpoints as programs for quantisation leave them, and what transformers says that their
dequantised weights compute.

Codes and scales are random, and dequantised here in numpy, after the layout that each format documents; MXFP4 is dequantised by
transformers, and what bitsandbytes makes by it. Run by hand when the goldens must change; the tests read its output only.

    python tests/model/make_quantized.py [--only NAME ...]        (torch, transformers, safetensors, bitsandbytes)

quantized/NAME/target                config.json and model.safetensors, of which git has the recipe (recipes.py)
quantized/NAME/expected.json, target.logits   as families/ has them
"""

import argparse
import copy
import json
import math
import pathlib
import shutil
import tempfile

import bitsandbytes
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from recipes import Recipe

HERE = pathlib.Path(__file__).parent
TEXT_LENGTHS = (40, 23)
GREEDY_TOKENS = 16
SMALLEST_MARGIN = 2e-3  # of a greedy step's two best logits, as a share of the largest
NOISE, NOISY_MODELS = 1e-3, 6  # of weights, as a share: of models of experts, texts that noise leads to others are refused
FARTHEST = 0.04  # of a noisy model's logits, as a share of the largest: a row through other experts moves farther
VOCAB = 101
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def codes_of(words, bits, axis, order=None):
    """Codes of `bits` bits along `axis`, which int32 words hold, the first in the lowest bits."""
    words = np.moveaxis(words.numpy().view(np.uint32), axis, -1)
    codes = words[..., None] >> np.arange(0, 32, bits, dtype=np.uint32) & np.uint32(2 ** bits - 1)
    if order:
        codes = codes[..., np.argsort(order)]
    return np.moveaxis(codes.reshape(*codes.shape[:-2], -1), -1, axis).astype(np.int64)


class Format:
    """Tensors of one matrix [out, in] in recipes, by describe(), and the weights that they stand for, by dequantised(). Codes are random,
    scales such that weights deviate by `size`, more or less."""

    def __init__(self, config, bits=4, group=32, symmetric=True, scale_type="F16"):
        self.config, self.bits, self.group, self.symmetric = config, bits, group, symmetric
        self.scale_type = scale_type

    def takes(self, key, stored):
        return (key.endswith(".weight") and stored[key].dim() == 2 and "embed" not in key and "lm_head" not in key
                and not key.endswith("mlp.gate.weight"))

    def groups(self, inputs):
        return -(-inputs // self.group) if self.group > 0 else 1

    def group_of_input(self, inputs):
        return np.arange(inputs) // (self.group if self.group > 0 else inputs)

    def scales(self, size):
        return "uniform", *around(size / (2 ** self.bits / math.sqrt(12)))


def around(value, share=0.6):
    """SCALE and OFFSET of what lies by up to that share of it around `value`."""
    return f"{share * value:.4g}", f"{value:.4g}"


def zeros_of_4_bits(less=0):
    """As of weights around 0: with zeros farther off, numbers of a row are alike and outputs large numbers that leave little of each other."""
    return "nibbles", 5 - less, 6


class Gptq(Format):
    def __init__(self, act_order=False, one_less=True, **more):
        super().__init__({"quant_method": "gptq", "desc_act": act_order}, **more)
        self.act_order, self.one_less = act_order, one_less
        self.config |= {"bits": self.bits, "group_size": self.group, "sym": self.symmetric,
                        "checkpoint_format": "gptq" if one_less else "gptq_v2"}

    def group_of_input(self, inputs):
        plain = super().group_of_input(inputs)
        return np.random.default_rng(inputs).permutation(plain) if self.act_order else plain

    def describe(self, recipe, stem, shape, size):
        outputs, inputs = shape
        groups, fields = self.groups(inputs), 32 // self.bits
        recipe.add(stem + ".qweight", "I32", [inputs // fields, outputs], "bytes", 0, 256)
        middle = 2 ** (self.bits - 1) - self.one_less
        zeros = zeros_of_4_bits(self.one_less) if not self.symmetric else \
            ("nibbles", middle, 1) if self.bits == 4 else ("bytes", middle, 1)
        recipe.add(stem + ".qzeros", "I32", [groups, outputs // fields], *zeros)
        recipe.add(stem + ".scales", self.scale_type, [groups, outputs], *self.scales(size))
        recipe.add_bytes(stem + ".g_idx", "I32", [inputs], self.group_of_input(inputs).astype("<i4").tobytes())
        recipe.add_bytes(stem + ".bias", "F16", [outputs], bytes(2 * outputs))

    def dequantised(self, stored, stem, shape):
        codes = codes_of(stored[stem + ".qweight"], self.bits, 0)
        zeros = codes_of(stored[stem + ".qzeros"], self.bits, 1) + self.one_less
        groups = stored[stem + ".g_idx"].numpy()
        return ((codes - zeros[groups]).astype(np.float32) * stored[stem + ".scales"].float().numpy()[groups]).T


class Awq(Format):
    def __init__(self, **more):
        super().__init__({"quant_method": "awq", "version": "gemm"}, symmetric=False, **more)
        self.config |= {"bits": self.bits, "group_size": self.group, "zero_point": True, "modules_to_not_convert": None}

    def describe(self, recipe, stem, shape, size):
        outputs, inputs = shape
        recipe.add(stem + ".qweight", "I32", [inputs, outputs // 8], "bytes", 0, 256)
        recipe.add(stem + ".qzeros", "I32", [self.groups(inputs), outputs // 8], *zeros_of_4_bits())
        recipe.add(stem + ".scales", self.scale_type, [self.groups(inputs), outputs], *self.scales(size))

    def dequantised(self, stored, stem, shape):
        codes, zeros = (codes_of(stored[f"{stem}.{part}"], 4, 1, AWQ_ORDER) for part in ("qweight", "qzeros"))
        groups = self.group_of_input(shape[1])
        return ((codes - zeros[groups]).astype(np.float32) * stored[stem + ".scales"].float().numpy()[groups]).T


def compressed(form, bits, kind, strategy, symmetric, group=None, **more):
    weights = {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": symmetric, "group_size": group} | more
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


class Packed(Format):
    def __init__(self, bits=4, group=32, symmetric=True):
        strategy = "group" if group > 0 else "channel"
        super().__init__(compressed("pack-quantized", bits, "int", strategy, symmetric, group if group > 0 else None),
                         bits, group, symmetric, "BF16")

    def describe(self, recipe, stem, shape, size):
        outputs, inputs = shape
        fields = 32 // self.bits
        recipe.add(stem + ".weight_packed", "I32", [outputs, inputs // fields], "bytes", 0, 256)
        recipe.add(stem + ".weight_scale", self.scale_type, [outputs, self.groups(inputs)], *self.scales(size))
        recipe.add_bytes(stem + ".weight_shape", "I64", [2], np.array(shape, "<i8").tobytes())
        if not self.symmetric:
            recipe.add(stem + ".weight_zero_point", "I32", [outputs // fields, self.groups(inputs)], *zeros_of_4_bits())

    def dequantised(self, stored, stem, shape):
        groups = self.group_of_input(shape[1])
        codes = codes_of(stored[stem + ".weight_packed"], self.bits, 1)
        zeros = 2 ** (self.bits - 1) if self.symmetric else \
            codes_of(stored[stem + ".weight_zero_point"], self.bits, 0)[:, groups]
        return (codes - zeros).astype(np.float32) * stored[stem + ".weight_scale"].float().numpy()[:, groups]


class Int8(Format):
    def __init__(self, group=-1):
        strategy = "group" if group > 0 else "channel"
        super().__init__(compressed("int-quantized", 8, "int", strategy, True, group if group > 0 else None), 8, group,
                         scale_type="F32")

    def describe(self, recipe, stem, shape, size):
        recipe.add(stem + ".weight", "I8", shape, "bytes", 0, 256)
        recipe.add(stem + ".weight_scale", self.scale_type, [shape[0], self.groups(shape[1])], *self.scales(size))

    def dequantised(self, stored, stem, shape):
        return stored[stem + ".weight"].float().numpy() * \
            stored[stem + ".weight_scale"].numpy()[:, self.group_of_input(shape[1])]


class Float8(Format):
    DEVIATION = 111  # of random codes

    def __init__(self, config, scale_name, block=None, per_tensor=False):
        super().__init__(config)
        self.scale_name, self.block, self.per_tensor = scale_name, block, per_tensor

    def describe(self, recipe, stem, shape, size):
        rows, columns = self.block or (1, shape[1])
        scales = [1] if self.per_tensor else [-(-shape[0] // rows), -(-shape[1] // columns)]
        recipe.add(stem + ".weight", "F8_E4M3", shape, "float8")
        recipe.add(f"{stem}.{self.scale_name}", "F32", scales, "uniform", *around(size / self.DEVIATION))

    def dequantised(self, stored, stem, shape):
        rows, columns = self.block or ((shape[0], shape[1]) if self.per_tensor else (1, shape[1]))
        scales = stored[f"{stem}.{self.scale_name}"].numpy().reshape(-1, -(-shape[1] // columns))
        return stored[stem + ".weight"].float().numpy() * \
            scales.repeat(rows, 0)[:shape[0]].repeat(columns, 1)[:, :shape[1]]


class Float8Partly(Float8):
    """As Qwen's checkpoints of linear attention are: gates and the shared expert's scale stay as they are."""
    PLAIN = ("in_proj_ba", "in_proj_b", "in_proj_a", "shared_expert_gate")

    def __init__(self):
        super().__init__({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128],
                          "modules_to_not_convert": ["lm_head", *self.PLAIN]}, "weight_scale_inv", (128, 128))

    def takes(self, key, stored):
        return super().takes(key, stored) and key.split(".")[-2] not in self.PLAIN


class Mxfp4(Format):
    DEVIATION = 3  # of random codes

    def __init__(self):
        super().__init__({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]})

    def takes(self, key, stored):
        return key.endswith(("experts.gate_up_proj", "experts.down_proj"))

    def describe(self, recipe, stem, shape, size):  # [experts, in, out]
        exponent = round(math.log2(size / self.DEVIATION)) + 127
        recipe.add(stem + "_blocks", "U8", [shape[0], shape[2], shape[1] // 32, 16], "bytes", 0, 256)
        recipe.add(stem + "_scales", "U8", [shape[0], shape[2], shape[1] // 32], "bytes", exponent - 1, 3)

    def dequantised(self, stored, stem, shape):
        parts = (stored[stem + part] for part in ("_blocks", "_scales"))
        return convert_moe_packed_tensors(*parts, dtype=torch.float32).contiguous().numpy()


class BitsAndBytes4(Format):
    DEVIATION = 0.6  # of random codes

    def __init__(self, kind, double):
        super().__init__({"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False,
                          "bnb_4bit_quant_type": kind, "bnb_4bit_use_double_quant": double,
                          "bnb_4bit_quant_storage": "uint8", "bnb_4bit_compute_dtype": "float16"})
        self.kind, self.double = kind, double
        self.first = {}  # tables, which are alike in all matrices

    def describe(self, recipe, stem, shape, size):
        """What bitsandbytes puts beside codes, with random scales."""
        codes, state = bitsandbytes.functional.quantize_4bit(
            torch.ones(shape), blocksize=64, quant_type=self.kind, compress_statistics=self.double)
        if self.double:
            state.offset.fill_(size / self.DEVIATION)
        recipe.add(stem + ".weight", "U8", list(codes.shape), "bytes", 0, 256)
        for key, value in state.as_dict(packed=True).items():
            name, table = f"{stem}.weight.{key}", key.endswith("quant_map")
            dtype, scales = {torch.uint8: "U8", torch.float32: "F32"}[value.dtype], around(size / self.DEVIATION)
            if key == "absmax":
                recipe.add(name, dtype, list(value.shape), *(("bytes", 0, 256) if self.double else ("uniform", *scales)))
            elif key == "nested_absmax":
                recipe.add(name, dtype, list(value.shape), "uniform", *around(0.5 * size / self.DEVIATION))
            elif table and key in self.first:
                recipe.add(name, dtype, list(value.shape), "same", self.first[key])
            else:
                recipe.add_bytes(name, dtype, list(value.shape), value.numpy().tobytes())
                if table:
                    self.first[key] = name

    def dequantised(self, stored, stem, shape):
        parts = {key.removeprefix(stem + ".weight."): value for key, value in stored.items()
                 if key.startswith(stem + ".weight.")}
        state = bitsandbytes.functional.QuantState.from_dict(parts, device=torch.device("cpu"))
        return bitsandbytes.functional.dequantize_4bit(stored[stem + ".weight"], state).float().numpy()


class BitsAndBytes8(Format):
    DEVIATION = 74 / 127  # of random codes

    def __init__(self):
        super().__init__({"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False,
                          "llm_int8_threshold": 6.0})

    def describe(self, recipe, stem, shape, size):
        recipe.add(stem + ".weight", "I8", shape, "bytes", 0, 256)
        recipe.add(stem + ".SCB", "F32", [shape[0]], "uniform", *around(size / self.DEVIATION))
        recipe.add_bytes(stem + ".weight_format", "U8", [], bytes(1))

    def dequantised(self, stored, stem, shape):
        return bitsandbytes.functional.int8_vectorwise_dequant(stored[stem + ".weight"], stored[stem + ".SCB"]).float().numpy()


def llama(**more):
    return ("llama", dict(hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
                          num_key_value_heads=2, vocab_size=VOCAB, max_position_embeddings=96,
                          tie_word_embeddings=False, bos_token_id=0, eos_token_id=0, pad_token_id=0) | more)


GATED = dict(hidden_size=96, intermediate_size=160, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
             head_dim=32, linear_num_key_heads=4, linear_num_value_heads=8, linear_key_head_dim=16,
             linear_value_head_dim=16, layer_types=["linear_attention", "full_attention"] * 2, vocab_size=VOCAB,
             max_position_embeddings=96, tie_word_embeddings=False, bos_token_id=0, eos_token_id=0, pad_token_id=0)

CHECKPOINTS = {
    "gptq": (Gptq(group=32), llama()),
    "gptq-zeros": (Gptq(group=64, symmetric=False), llama()),
    "gptq-v2-rows": (Gptq(group=-1, one_less=False, symmetric=False), llama()),
    "gptq-8bit": (Gptq(bits=8, group=32), llama()),
    "gptq-act-order": (Gptq(act_order=True, group=32), llama(num_attention_heads=4)),
    "awq": (Awq(group=64), llama()),
    "awq-qwen2": (Awq(group=32), ("qwen2", llama()[1] | {"tie_word_embeddings": True})),
    "packed-int4": (Packed(), llama(intermediate_size=200)),
    "packed-int4-zeros": (Packed(group=16, symmetric=False), llama()),
    "packed-int8": (Packed(bits=8, group=64), llama()),
    "int8-channel": (Int8(), llama()),
    "int8-group": (Int8(group=64), llama()),
    "float8-channel": (Float8(compressed("float-quantized", 8, "float", "channel", True), "weight_scale"), llama()),
    "float8-tensor": (Float8(compressed("float-quantized", 8, "float", "tensor", True), "weight_scale",
                             per_tensor=True), llama()),
    "float8-block": (Float8({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128],
                             "activation_scheme": "dynamic"}, "weight_scale_inv", (128, 128)),
                     ("qwen3", llama(hidden_size=160, intermediate_size=288)[1] | {"head_dim": 48})),
    "bitsandbytes-nf4": (BitsAndBytes4("nf4", False), llama()),
    "bitsandbytes-nf4-double": (BitsAndBytes4("nf4", True), llama(intermediate_size=320)),
    "bitsandbytes-fp4": (BitsAndBytes4("fp4", False), llama()),
    "bitsandbytes-fp4-double": (BitsAndBytes4("fp4", True), llama(intermediate_size=320)),
    "bitsandbytes-int8": (BitsAndBytes8(), llama()),
    "mxfp4": (Mxfp4(), ("gpt_oss", dict(
        hidden_size=96, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=11, vocab_size=VOCAB,
        max_position_embeddings=96, bos_token_id=0, eos_token_id=0, pad_token_id=0, rope_parameters={
            "rope_type": "yarn", "factor": 4.0, "rope_theta": 1000.0, "original_max_position_embeddings": 32,
            "truncate": False}))),
    "float8-block-linear": (Float8Partly(), ("qwen3_5_text", GATED)),
    "float8-block-linear-experts": (Float8Partly(), ("qwen3_next", GATED | dict(
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, shared_expert_intermediate_size=64,
        norm_topk_prob=True))),
    "float8-block-latent": (Float8({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
                                   "weight_scale_inv", (128, 128)),
                            ("deepseek_v3", dict(
                                hidden_size=128, intermediate_size=160, moe_intermediate_size=144, num_hidden_layers=2,
                                num_attention_heads=4, num_key_value_heads=4, n_routed_experts=4, n_shared_experts=1,
                                num_experts_per_tok=2, n_group=1, topk_group=1, first_k_dense_replace=1,
                                q_lora_rank=None, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=16,
                                v_head_dim=32, vocab_size=VOCAB, max_position_embeddings=96, routed_scaling_factor=1.0,
                                tie_word_embeddings=False, bos_token_id=0, eos_token_id=0, pad_token_id=0))),
}


ENDS_OF_BRANCHES = ("o_proj", "out_proj", "down_proj", "c_proj")  # half as large: what a branch adds is then about as large as embeddings are


def size_of(name, shape):
    """How far random weights of a tensor deviate."""
    if len(shape) == 1:
        return 0.2
    if "embed" in name:
        return 1
    return (0.6 if any(part in name for part in ENDS_OF_BRANCHES) else 1.2) * shape[-1] ** -0.5


def uniform(name, shape, around_1=None):
    """How a recipe makes a tensor that is not quantised."""
    is_norm = len(shape) == 1 and not name.endswith("bias") if around_1 is None else around_1
    return "uniform", f"{math.sqrt(3) * size_of(name, shape):.4g}", 1 if is_norm else 0


def make(name, form, family, shapes):
    directory = HERE / "quantized" / name
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "target").mkdir(parents=True)
    config = transformers.AutoConfig.for_model(family, **shapes)
    with tempfile.TemporaryDirectory() as scratch:  # what a file of that model holds, and which weights ours stand for
        transformers.AutoModelForCausalLM.from_config(config).half().save_pretrained(scratch)
        file = pathlib.Path(scratch) / "model.safetensors"
        plain = load_file(file)
        recipe = Recipe("safetensors", name)
        for key, value in sorted(plain.items()):
            shape, stem = list(value.shape), key.removesuffix(".weight")
            if form.takes(key, plain):
                form.describe(recipe, stem, shape, size_of(key, shape))
            else:
                recipe.add(key, {torch.float16: "F16", torch.float32: "F32"}[value.dtype], shape, *uniform(key, shape))
        recipe.write(directory / "target" / "model.safetensors")
        stored = load_file(directory / "target" / "model.safetensors")
        weights = {}
        for key, value in plain.items():
            if form.takes(key, plain):
                whole = form.dequantised(stored, key.removesuffix(".weight"), list(value.shape))
                weights[key] = torch.from_numpy(np.ascontiguousarray(whole))
            else:
                weights[key] = stored[key].float()
        save_file(weights, file, metadata={"format": "pt"})
        fields = json.loads((pathlib.Path(scratch) / "config.json").read_text())
        fields |= {"quantization_config": form.config, "dtype": "float16"}
        (directory / "target" / "config.json").write_text(json.dumps(fields, indent=1, sort_keys=True) + "\n")
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            scratch, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        assert not info["missing_keys"] and not info["mismatched_keys"] and not info["unexpected_keys"], info
    expect(model.eval(), directory, sum(name.encode()))


@torch.no_grad()
def noisy(model, seed):
    """Its weights as far off as rounding to 16 bits leaves them, or a little more."""
    generator, other = torch.Generator().manual_seed(seed), copy.deepcopy(model)
    for value in other.parameters():
        value.mul_(1 + NOISE * torch.randn(value.shape, generator=generator))
    return other


@torch.no_grad()
def routing_is_clear(model, others, text):
    """No row goes through other experts in a noisy model."""
    whole = model(text, use_cache=False).logits[0]
    distances = [(other(text, use_cache=False).logits[0] - whole).abs().amax(-1) / whole.abs().amax(-1) for other in others]
    return all(row.max() < FARTHEST for row in distances)


def expect(model, directory, seed):
    texts, rows = [], []
    names = " ".join(name for name, _ in model.named_parameters())
    is_checked = ".experts." in names and "linear_attn" not in names  # whose short keys noise turns as it does experts
    others = [noisy(model, number) for number in range(NOISY_MODELS if is_checked else 0)]
    for number, length in enumerate(TEXT_LENGTHS):
        for attempt in range(200):
            generator = torch.Generator().manual_seed(seed + 1000 * number + attempt)
            tokens = torch.randint(1, VOCAB, (1, length), generator=generator)
            with torch.no_grad():
                logits, text, greedy, margins = None, tokens, [], []
                for _ in range(GREEDY_TOKENS):
                    logits = model(text, use_cache=False).logits[0]
                    best = logits[-1].topk(2).values
                    margins.append(float((best[0] - best[1]) / logits[-1].abs().max()))
                    greedy.append(int(logits[-1].argmax()))
                    text = torch.cat([text, logits[-1].argmax().view(1, 1)], 1)
            if min(margins) > SMALLEST_MARGIN and routing_is_clear(model, others, text):
                break
        else:
            raise SystemExit(f"{directory.name}: no text with clear margins and experts")
        positions = list(range(0, length, 6)) + [length - 1]
        rows += [logits[position].numpy().astype("<f4").tobytes() for position in positions]
        texts.append({"tokens": tokens[0].tolist(), "greedy": greedy, "positions": positions})
    parameters = sum(value.numel() for value in model.parameters())
    (directory / "target.logits").write_bytes(b"".join(rows))
    (directory / "expected.json").write_text(json.dumps(
        {"tokenizer_size": VOCAB, "target": {"parameters": parameters, "texts": texts}}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(CHECKPOINTS), metavar="NAME")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name in parser.parse_args().only:
        form, (family, shapes) = CHECKPOINTS[name]
        make(name, form, family, shapes)
        print(name)


if __name__ == "__main__":
    main()
