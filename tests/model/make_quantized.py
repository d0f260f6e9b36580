"""Writes quantized/: tiny checkpoints as programs for quantisation leave them, and what transformers says that their
dequantised weights compute.

Codes are packed here in numpy, after the layout that each format documents; weights are random, and rounded to each
group's range. MXFP4 is dequantised by transformers, and what bitsandbytes makes is made and dequantised by it. Run by
hand when the goldens must change; the tests read its output only.

    python tests/model/make_quantized.py [--only NAME ...]        (torch, transformers, safetensors, bitsandbytes)

quantized/NAME/target                config.json and model.safetensors
quantized/NAME/expected.json, target.logits   as families/ has them
"""

import argparse
import copy
import json
import pathlib
import shutil

import bitsandbytes
import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = pathlib.Path(__file__).parent
TEXT_LENGTHS = (40, 23)
GREEDY_TOKENS = 16
SMALLEST_MARGIN = 2e-3  # of a greedy step's two best logits, as a share of the largest
VOCAB = 101
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def words(codes, bits, axis, order=None):
    """Codes of `bits` bits along `axis` as int32, the first in the lowest bits."""
    codes = np.moveaxis(codes.astype(np.uint32), axis, -1)
    fields = 32 // bits
    missing = -codes.shape[-1] % fields
    codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, missing)]).reshape(*codes.shape[:-1], -1, fields)
    if order:
        codes = codes[..., order]
    packed = np.zeros(codes.shape[:-1], np.uint32)
    for place in range(fields):
        packed |= codes[..., place] << np.uint32(bits * place)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(packed, -1, axis)).view(np.int32))


def rounded(weight, bits, group_of_input, symmetric, scale_type):
    """Codes without a sign [out, in], scales and zeros [out, groups]."""
    groups = int(group_of_input.max()) + 1
    scales, zeros = np.zeros((weight.shape[0], groups), np.float32), np.zeros((weight.shape[0], groups), np.int64)
    top = 2 ** bits - 1
    for group in range(groups):
        part = weight[:, group_of_input == group]
        if symmetric:
            scale = np.abs(part).max(1) / (2 ** (bits - 1) - 1)
        else:
            low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
            scale = (high - low) / top
        scales[:, group] = torch.from_numpy(scale).to(scale_type).float().numpy()
        zeros[:, group] = 2 ** (bits - 1) if symmetric else np.clip(np.rint(-low / scales[:, group]), 1, top)
    codes = np.rint(weight / scales[:, group_of_input]) + zeros[:, group_of_input]
    return np.clip(codes, 0, top).astype(np.int64), scales, zeros


class Format:
    """Tensors and dequantised weights of one matrix, by quantise(stem, weight [out, in])."""

    def __init__(self, config, bits=4, group=32, symmetric=True, scale_type=torch.float16):
        self.config, self.bits, self.group, self.symmetric = config, bits, group, symmetric
        self.scale_type = scale_type

    def takes(self, key, stored):
        return (key.endswith(".weight") and stored[key].dim() == 2 and "embed" not in key and "lm_head" not in key
                and not key.endswith("mlp.gate.weight"))

    def group_of_input(self, inputs):
        return np.arange(inputs) // (self.group if self.group > 0 else inputs)

    def parts(self, weight):
        groups = self.group_of_input(weight.shape[1])
        codes, scales, zeros = rounded(weight, self.bits, groups, self.symmetric, self.scale_type)
        return codes, scales, zeros, (codes - zeros[:, groups]).astype(np.float32) * scales[:, groups]


class Gptq(Format):
    def __init__(self, act_order=False, one_less=True, **more):
        super().__init__({"quant_method": "gptq", "desc_act": act_order}, **more)
        self.act_order, self.one_less = act_order, one_less
        self.config |= {"bits": self.bits, "group_size": self.group, "sym": self.symmetric,
                        "checkpoint_format": "gptq" if one_less else "gptq_v2"}

    def group_of_input(self, inputs):
        plain = super().group_of_input(inputs)
        return np.random.default_rng(inputs).permutation(plain) if self.act_order else plain

    def quantise(self, stem, weight):
        codes, scales, zeros, whole = self.parts(weight)
        return {stem + ".qweight": words(codes.T, self.bits, 0),
                stem + ".qzeros": words(zeros.T - self.one_less, self.bits, 1),
                stem + ".scales": torch.from_numpy(scales.T.copy()).to(self.scale_type),
                stem + ".g_idx": torch.from_numpy(self.group_of_input(weight.shape[1]).astype(np.int32)),
                stem + ".bias": torch.zeros(weight.shape[0], dtype=torch.float16)}, whole


class Awq(Format):
    def __init__(self, **more):
        super().__init__({"quant_method": "awq", "version": "gemm"}, symmetric=False, **more)
        self.config |= {"bits": self.bits, "group_size": self.group, "zero_point": True, "modules_to_not_convert": None}

    def quantise(self, stem, weight):
        codes, scales, zeros, whole = self.parts(weight)
        return {stem + ".qweight": words(codes.T, 4, 1, AWQ_ORDER), stem + ".qzeros": words(zeros.T, 4, 1, AWQ_ORDER),
                stem + ".scales": torch.from_numpy(scales.T.copy()).to(self.scale_type)}, whole


def compressed(form, bits, kind, strategy, symmetric, group=None, **more):
    weights = {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": symmetric, "group_size": group} | more
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


class Packed(Format):
    def __init__(self, bits=4, group=32, symmetric=True):
        strategy = "group" if group > 0 else "channel"
        super().__init__(compressed("pack-quantized", bits, "int", strategy, symmetric, group if group > 0 else None),
                         bits, group, symmetric, torch.bfloat16)

    def quantise(self, stem, weight):
        codes, scales, zeros, whole = self.parts(weight)
        tensors = {stem + ".weight_packed": words(codes, self.bits, 1),
                   stem + ".weight_scale": torch.from_numpy(scales).to(torch.bfloat16),
                   stem + ".weight_shape": torch.tensor(weight.shape)}
        if not self.symmetric:
            tensors[stem + ".weight_zero_point"] = words(zeros, self.bits, 0)
        return tensors, whole


class Int8(Format):
    def __init__(self, group=-1):
        strategy = "group" if group > 0 else "channel"
        super().__init__(compressed("int-quantized", 8, "int", strategy, True, group if group > 0 else None), 8, group)

    def quantise(self, stem, weight):
        codes, scales, zeros, whole = self.parts(weight)
        return {stem + ".weight": torch.from_numpy((codes - 128).astype(np.int8)),
                stem + ".weight_scale": torch.from_numpy(scales)}, whole


class Float8(Format):
    def __init__(self, config, scale_name, block=None, per_tensor=False):
        super().__init__(config)
        self.scale_name, self.block, self.per_tensor = scale_name, block, per_tensor

    def quantise(self, stem, weight):
        rows, columns = self.block or ((weight.shape[0], weight.shape[1]) if self.per_tensor else (1, weight.shape[1]))
        n_rows, n_columns = -(-weight.shape[0] // rows), -(-weight.shape[1] // columns)
        scales = np.zeros((n_rows, n_columns), np.float32)
        for r in range(n_rows):
            for c in range(n_columns):
                scales[r, c] = np.abs(weight[r * rows:(r + 1) * rows, c * columns:(c + 1) * columns]).max() / 448
        whole = scales.repeat(rows, 0)[:weight.shape[0]].repeat(columns, 1)[:, :weight.shape[1]]
        codes = torch.from_numpy(weight / whole).to(torch.float8_e4m3fn)
        stored = torch.from_numpy(scales.reshape(1) if self.per_tensor else scales)
        return {stem + ".weight": codes, stem + "." + self.scale_name: stored}, codes.float().numpy() * whole


class Float8Partly(Float8):
    """As Qwen's checkpoints of linear attention are: gates and the shared expert's scale stay as they are."""
    PLAIN = ("in_proj_ba", "in_proj_b", "in_proj_a", "shared_expert_gate")

    def __init__(self):
        super().__init__({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128],
                          "modules_to_not_convert": ["lm_head", *self.PLAIN]}, "weight_scale_inv", (128, 128))

    def takes(self, key, stored):
        return super().takes(key, stored) and key.split(".")[-2] not in self.PLAIN


class Mxfp4(Format):
    VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)

    def __init__(self):
        super().__init__({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]})

    def takes(self, key, stored):
        return key.endswith(("experts.gate_up_proj", "experts.down_proj"))

    def quantise(self, stem, weight):  # [experts, in, out]
        groups = weight.transpose(0, 2, 1).reshape(weight.shape[0], weight.shape[2], -1, 32)
        exponents = np.floor(np.log2(np.abs(groups).max(-1))) - 2
        scaled = groups / 2 ** exponents[..., None]
        codes = np.abs(np.abs(scaled)[..., None] - self.VALUES).argmin(-1) + 8 * (scaled < 0)
        blocks = torch.from_numpy((codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8))
        scales = torch.from_numpy((exponents + 127).astype(np.uint8))
        whole = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).contiguous()
        return {stem + "_blocks": blocks, stem + "_scales": scales}, whole.numpy()


class BitsAndBytes4(Format):
    def __init__(self, kind, double):
        super().__init__({"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False,
                          "bnb_4bit_quant_type": kind, "bnb_4bit_use_double_quant": double,
                          "bnb_4bit_quant_storage": "uint8", "bnb_4bit_compute_dtype": "float16"})
        self.kind, self.double = kind, double

    def quantise(self, stem, weight):
        codes, state = bitsandbytes.functional.quantize_4bit(
            torch.from_numpy(weight), blocksize=64, quant_type=self.kind, compress_statistics=self.double)
        whole = bitsandbytes.functional.dequantize_4bit(codes, state)
        parts = {f"{stem}.weight.{key}": value for key, value in state.as_dict(packed=True).items()}
        return {stem + ".weight": codes, **parts}, whole.float().numpy()


class BitsAndBytes8(Format):
    def __init__(self):
        super().__init__({"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False,
                          "llm_int8_threshold": 6.0})

    def quantise(self, stem, weight):
        codes, scales, _ = bitsandbytes.functional.int8_vectorwise_quant(torch.from_numpy(weight).half())
        whole = bitsandbytes.functional.int8_vectorwise_dequant(codes, scales)
        return {stem + ".weight": codes, stem + ".SCB": scales,
                stem + ".weight_format": torch.tensor(0, dtype=torch.uint8)}, whole.float().numpy()


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


def randomise(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, value in model.named_parameters():
        noise = torch.randn(value.shape, generator=generator)
        if value.dim() == 1:
            value.data = (noise * 0.2 + (0 if name.endswith("bias") else 1)).to(torch.float16).float()
        else:
            value.data = (noise * (1 if "embed" in name else 1.5 * value.shape[-1] ** -0.5)).to(torch.float16).float()


def make(name, form, family, shapes):
    directory = HERE / "quantized" / name
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "target").mkdir(parents=True)
    seed = sum(name.encode())
    config = transformers.AutoConfig.for_model(family, **shapes)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    randomise(model, seed)
    copy.deepcopy(model).half().save_pretrained(directory / "target")  # all of it: tables of positions would be rounded
    stored = transformers.modeling_utils.load_state_dict(directory / "target" / "model.safetensors")
    stored = {key: value.clone() for key, value in stored.items()}
    weights = dict(model.named_parameters())
    for name in sorted(key for key in stored if form.takes(key, stored)):
        stem = name.removesuffix(".weight")
        tensors, whole = form.quantise(stem, stored.pop(name).float().numpy())
        for key, value in tensors.items():
            stored.setdefault(key, value)
        put(weights, stem, torch.from_numpy(whole))
    fields = json.loads((directory / "target" / "config.json").read_text())
    fields |= {"quantization_config": form.config, "dtype": "float16"}
    (directory / "target" / "generation_config.json").unlink(missing_ok=True)
    (directory / "target" / "config.json").write_text(json.dumps(fields, indent=1, sort_keys=True) + "\n")
    save_file({key: value.contiguous() for key, value in stored.items()}, directory / "target" / "model.safetensors",
              metadata={"format": "pt"})
    expect(model, directory, seed)


def put(weights, stem, whole):
    """Into the module of a stored matrix, which may hold those of all experts."""
    for name in (stem, stem + ".weight"):
        if name in weights:
            weights[name].data = whole
            return
    body, _, expert = stem.partition(".experts.")
    number, which = expert.split(".")
    if which == "down_proj":
        weights[body + ".experts.down_proj"].data[int(number)] = whole
        return
    both = weights[body + ".experts.gate_up_proj"].data[int(number)]
    half = both.shape[0] // 2
    both[:half if which == "gate_proj" else None][0 if which == "gate_proj" else half:] = whole


def expect(model, directory, seed):
    texts, rows = [], []
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
            if min(margins) > SMALLEST_MARGIN:
                break
        else:
            raise SystemExit(f"{directory.name}: no text with clear margins")
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
