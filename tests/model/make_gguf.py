"""Writes quantized/gguf-*: tiny GGUF files, and what transformers says that their dequantised weights compute.

PyPI's gguf writes and dequantises them. It quantises Q8_0 and Q4_0; of Q4_K and Q6_K the blocks are random. Run by hand
when the goldens must change; the tests read its output only.

    python tests/model/make_gguf.py        (torch, transformers, gguf)

quantized/NAME/target/model.gguf
quantized/NAME/expected.json, target.logits   as families/ has them
"""

import shutil

import gguf
import numpy as np
import torch
import transformers

import make_quantized
from make_quantized import HERE, VOCAB, llama

KIND = gguf.GGMLQuantizationType
ROPE = {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1000.0, "factor": 8.0, "low_freq_factor": 1.0,
                            "high_freq_factor": 4.0, "original_max_position_embeddings": 32}}
WIDE = dict(hidden_size=256, intermediate_size=256)
GEMMA = dict(num_key_value_heads=1, head_dim=32, tie_word_embeddings=True)
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LAYER_NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
               "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
               "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
               "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
CHECKPOINTS = {  # family, shapes, kind of matrices, of some of them
    "gguf-q8_0": ("llama", llama(**ROPE)[1], KIND.Q8_0, {}),
    "gguf-q4_0-qwen2": ("qwen2", llama()[1] | {"tie_word_embeddings": True}, KIND.Q4_0, {"ffn_down": KIND.Q8_0}),
    "gguf-q4_0-qwen3": ("qwen3", llama(head_dim=48)[1], KIND.Q4_0, {"output": KIND.BF16, "token_embd": KIND.F16}),
    "gguf-q4_k": ("llama", llama(**WIDE)[1], KIND.Q4_K,
                  {"attn_v": KIND.Q6_K, "ffn_down": KIND.Q6_K, "token_embd": KIND.Q6_K, "output": KIND.Q6_K}),
    "gguf-q8_0-gemma": ("gemma", llama(**GEMMA)[1], KIND.Q8_0, {}),
}


def stored_name(name):
    stem, _, ending = name.rpartition(".")
    if not stem.startswith("model.layers."):
        return f"{NAMES[stem]}.{ending}"
    _, _, number, stem = stem.split(".", 3)
    return f"blk.{number}.{LAYER_NAMES[stem]}.{ending}"


def turned(weight, heads, back=False):
    """Llama's queries and keys as GGUF has them: neighbouring numbers of a head are rotated together."""
    shape = (heads, 2, -1) if not back else (heads, weight.shape[0] // heads // 2, 2)
    return weight.reshape(*shape, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def random_blocks(shape, kind, random):
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (shape[0] * shape[1] // block, size), dtype=np.uint8)

    def put_half(at, values):
        blocks[:, at:at + 2] = values.astype(np.float16).reshape(-1, 1).view(np.uint8)

    count = len(blocks)
    if kind == KIND.Q4_K:
        put_half(0, random.uniform(2e-4, 5e-4, count))
        put_half(2, random.uniform(1e-3, 3e-3, count))
        blocks[::7, 4] &= 0xc0  # a scale of 0, over a minimum
    else:
        put_half(208, random.uniform(3e-5, 1e-4, count))
    return blocks.reshape(shape[0], -1)


def encoded(weight, kind, random):
    """What the file has of it, and the numbers that this stands for."""
    if kind in (KIND.Q4_K, KIND.Q6_K):
        stored = random_blocks(weight.shape, kind, random)
    else:
        stored = gguf.quants.quantize(weight, kind)
    return stored, gguf.quants.dequantize(stored, kind).astype(np.float32)


def add_fields(writer, family, config):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if family != "llama":
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)


def make(name, family, shapes, kind, kinds):
    directory = HERE / "quantized" / name
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "target").mkdir(parents=True)
    seed = sum(name.encode())
    random = np.random.default_rng(seed)
    config = transformers.AutoConfig.for_model(family, **shapes)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    make_quantized.randomise(model, seed)
    writer = gguf.GGUFWriter(directory / "target" / "model.gguf", family)
    add_fields(writer, family, config)
    for key, value in model.named_parameters():
        stored = stored_name(key)
        weight = value.data.numpy().copy()
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(stored.split(".")[-2])
        is_turned = family == "llama" and heads is not None
        of = KIND.F32 if weight.ndim == 1 else kinds.get(stored.split(".")[-2], kind)
        parts, whole = encoded(turned(weight, heads) if is_turned else weight, of, random)
        value.data = torch.from_numpy((turned(whole, heads, back=True) if is_turned else whole).copy())
        if family == "gemma" and "norm" in key:
            parts = parts + 1
        writer.add_tensor(stored, parts, raw_dtype=of)
    if "rope_parameters" in shapes:
        inverse = model.model.rotary_emb.inv_freq.numpy()
        plain = 1.0 / config.rope_parameters["rope_theta"] ** (np.arange(0, 2 * len(inverse), 2) / (2 * len(inverse)))
        writer.add_tensor("rope_freqs.weight", (plain / inverse).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    make_quantized.expect(model, directory, seed)


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name, (family, shapes, kind, kinds) in CHECKPOINTS.items():
        make(name, family, shapes, kind, kinds)
        print(name)


if __name__ == "__main__":
    main()
