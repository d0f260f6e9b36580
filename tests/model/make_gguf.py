"""Writes quantized/gguf-*: tiny GGUF files, and what transformers says that their dequantised weights compute.

PyPI's gguf names tensors, writes and dequantises them. The blocks of types that it does not quantise are random. What it leaves to converters (which weights are turned, parted or shifted, which fields are written) is as
llama.cpp's has it. Run by hand when the goldens must change; the tests read its output only.

    python tests/model/make_gguf.py [--only NAME ...]        (torch, transformers, gguf)

quantized/NAME/target/model.gguf, or its parts
quantized/NAME/expected.json, target.logits   as families/ has them
"""

import argparse
import shutil

import gguf
import numpy as np
import torch
import transformers

import make_quantized
from make_quantized import HERE, VOCAB, llama

KIND = gguf.GGMLQuantizationType
YARN = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 32,
        "beta_fast": 32.0, "beta_slow": 1.0}
ROPE = {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1000.0, "factor": 8.0, "low_freq_factor": 1.0,
                            "high_freq_factor": 4.0, "original_max_position_embeddings": 32}}
LONG_ROPE = {"rope_type": "longrope", "rope_theta": 1000.0, "partial_rotary_factor": 0.75,
             "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 1.7], "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
             "original_max_position_embeddings": 80}
WIDE = dict(hidden_size=256, intermediate_size=256)


def small(**more):
    return llama(hidden_size=64, intermediate_size=96)[1] | more


CHECKPOINTS = {  # architecture, model type, shapes, kind of matrices, of some of them
    "gguf-q8_0": ("llama", "llama", llama(**ROPE)[1], KIND.Q8_0, {}),
    "gguf-q4_0-qwen2": ("qwen2", "qwen2", llama()[1] | {"tie_word_embeddings": True}, KIND.Q4_0,
                        {"ffn_down": KIND.Q8_0}),
    "gguf-q4_0-qwen3": ("qwen3", "qwen3", llama(head_dim=48)[1], KIND.Q4_0,
                        {"output": KIND.BF16, "token_embd": KIND.F16}),
    "gguf-q4_k": ("llama", "llama", llama(**WIDE)[1], KIND.Q4_K,
                  {"attn_v": KIND.Q6_K, "ffn_down": KIND.Q6_K, "token_embd": KIND.Q6_K, "output": KIND.Q6_K}),
    "gguf-q8_0-gemma": ("gemma", "gemma", llama(num_key_value_heads=1, head_dim=32, tie_word_embeddings=True)[1],
                        KIND.Q8_0, {}),
    "gguf-q8_0-gemma2": ("gemma2", "gemma2", small(head_dim=32, query_pre_attn_scalar=32, sliding_window=11,
                                                   tie_word_embeddings=True), KIND.Q8_0, {}),
    "gguf-q8_0-gemma3": ("gemma3", "gemma3_text", small(
        head_dim=32, query_pre_attn_scalar=32, sliding_window=11, tie_word_embeddings=True, num_hidden_layers=6,
        intermediate_size=32, rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 700.0}}), KIND.Q8_0, {}),
    "gguf-q8_0-mixtral": ("llama", "mixtral", small(num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
                          KIND.Q8_0, {"ffn_down_exps": KIND.Q4_0}),
    "gguf-q8_0-qwen2-moe": ("qwen2moe", "qwen2_moe", small(
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=64),
                            KIND.Q8_0, {}),
    "gguf-q4_0-qwen3-moe": ("qwen3moe", "qwen3_moe", small(
        head_dim=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True), KIND.Q4_0,
                            {}),
    "gguf-q8_0-olmoe": ("olmoe", "olmoe", small(num_experts=4, num_experts_per_tok=2, intermediate_size=32), KIND.Q8_0,
                        {}),
    "gguf-q8_0-glm4-moe": ("glm4moe", "glm4_moe", small(
        head_dim=32, use_qk_norm=True, attention_bias=True, n_routed_experts=4, n_shared_experts=1,
        num_experts_per_tok=2, moe_intermediate_size=32, first_k_dense_replace=1, routed_scaling_factor=1.5,
        n_group=1, topk_group=1, partial_rotary_factor=0.5), KIND.Q8_0, {}),
    "gguf-mxfp4": ("gpt-oss", "gpt_oss", small(
        head_dim=32, intermediate_size=64, num_local_experts=4, num_experts_per_tok=2, sliding_window=11,
        rope_parameters=YARN | {"truncate": False}), KIND.Q8_0,
                   {"ffn_gate_exps": KIND.MXFP4, "ffn_up_exps": KIND.MXFP4, "ffn_down_exps": KIND.MXFP4}),
    "gguf-every-type": ("llama", "llama", llama(
        hidden_size=256, intermediate_size=64, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        head_dim=16)[1], KIND.Q4_K, {
            "token_embd": KIND.Q3_K, "output": KIND.Q6_K,
            "blk.0.attn_q": KIND.Q2_K, "blk.0.attn_k": KIND.Q3_K, "blk.0.attn_v": KIND.Q5_K,
            "blk.0.ffn_gate": KIND.IQ4_XS, "blk.0.ffn_up": KIND.Q2_K,
            "blk.1.attn_q": KIND.IQ3_S, "blk.1.attn_k": KIND.IQ3_XXS, "blk.1.attn_v": KIND.IQ4_XS,
            "blk.1.ffn_gate": KIND.IQ2_XXS, "blk.1.ffn_up": KIND.IQ2_XS,
            "blk.2.attn_q": KIND.IQ2_S, "blk.2.attn_k": KIND.TQ1_0, "blk.2.attn_v": KIND.TQ2_0,
            "blk.2.ffn_gate": KIND.IQ1_S, "blk.2.ffn_up": KIND.IQ1_M,
            "blk.0.attn_output": KIND.Q5_0, "blk.1.attn_output": KIND.Q4_1, "blk.2.attn_output": KIND.IQ4_NL,
            "blk.0.ffn_down": KIND.Q5_1, "blk.1.ffn_down": KIND.IQ4_NL, "blk.2.ffn_down": KIND.NVFP4}),
    "gguf-nvfp4-qwen3-moe": ("qwen3moe", "qwen3_moe", small(
        head_dim=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True,
        num_hidden_layers=1), KIND.NVFP4, {"token_embd": KIND.Q5_0, "output": KIND.Q5_1}),
    "gguf-q4_0-phi3": ("phi3", "phi3", small(sliding_window=37, original_max_position_embeddings=80, rope_parameters=LONG_ROPE), KIND.Q4_0, {}),
    "gguf-q8_0-olmo2": ("olmo2", "olmo2", small(rope_parameters=YARN), KIND.Q8_0, {}),
    "gguf-q8_0-granite": ("granite", "granite", small(
        attention_multiplier=0.2, embedding_multiplier=3.0, residual_multiplier=0.6, logits_scaling=2.0), KIND.Q8_0, {}),
    "gguf-q8_0-smollm3": ("smollm3", "smollm3", small(num_hidden_layers=4, intermediate_size=32), KIND.Q8_0, {}),
    "gguf-q8_0-starcoder2": ("starcoder2", "starcoder2", small(sliding_window=None), KIND.Q8_0, {}),
    "gguf-q8_0-stablelm": ("stablelm", "stablelm", small(
        use_qkv_bias=True, use_parallel_residual=False, partial_rotary_factor=0.25), KIND.Q8_0, {}),
    "gguf-q8_0-cohere2": ("cohere2", "cohere2", small(num_hidden_layers=4, intermediate_size=32, sliding_window=11,
                                                      logit_scale=0.25, tie_word_embeddings=True), KIND.Q8_0, {}),
    "gguf-q8_0-glm4": ("glm4", "glm4", small(head_dim=32, attention_bias=True, partial_rotary_factor=0.5), KIND.Q8_0,
                       {}),
}
PARTS = {"gguf-q8_0-mixtral": 12}  # at most so many tensors in each
TURNED = ("llama", "granite", "smollm3")  # architectures whose pairs of rotated numbers are neighbours in files alone
SHIFTED = ("gemma", "gemma2", "gemma3")


def turned(weight, heads, back=False):
    """Queries and keys as some files have them: neighbouring numbers of a head are rotated together."""
    shape = (heads, 2, -1) if not back else (heads, weight.shape[0] // heads // 2, 2)
    return weight.reshape(*shape, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


# Where halves of blocks lie: a scale, and of some a minimum, so many times as large that weights lie around 0.
HALVES = {KIND.Q2_K: (80, 82, 1.5), KIND.Q3_K: (108,), KIND.Q4_K: (0, 2, 7.5), KIND.Q5_K: (0, 2, 15.5),
          KIND.Q6_K: (208,), KIND.IQ1_M: ()}


def put_scale(blocks, kind, scale):
    def put_half(at, values):
        blocks[:, at:at + 2] = values.astype("<f2").reshape(-1, 1).view(np.uint8)

    at = HALVES.get(kind, (0,))
    if kind == KIND.IQ1_M:  # in the upper 4 bits of four words
        bits = scale.astype("<f2").view("<u2")
        for i in range(4):
            byte = blocks[:, 49 + 2 * i]
            byte[:] = byte & 0x0f | (bits >> 4 * i & 15).astype(np.uint8) << 4
        return
    put_half(at[0], scale)
    if len(at) > 1:
        put_half(at[1], scale * at[2])


def random_blocks(shape, kind, size, random):
    """Blocks of weights of about that size."""
    block, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (np.prod(shape) // block, n_bytes), dtype=np.uint8)
    put_scale(blocks, kind, np.ones(len(blocks)))
    usual = np.sqrt((gguf.quants.dequantize(blocks, kind) ** 2).mean())
    put_scale(blocks, kind, random.uniform(0.7, 1.3, len(blocks)) * size / usual)
    if kind == KIND.Q4_K:
        blocks[::7, 4] &= 0xc0  # a scale of 0, over a minimum
    return blocks.reshape(*shape[:-1], -1)


def encoded(weight, kind, random):
    """What the file has of it, and the numbers that this stands for."""
    try:
        stored = gguf.quants.quantize(np.ascontiguousarray(weight), kind)
    except NotImplementedError:
        stored = random_blocks(weight.shape, kind, weight.std(), random)
    return stored, gguf.quants.dequantize(stored, kind).astype(np.float32)


def encoded_with_scales(weight, random):
    """NVFP4, with one more scale for the tensor, or for each expert, and what belongs to its activations."""
    block, n_bytes = gguf.GGML_QUANT_SIZES[KIND.NVFP4]
    blocks = random.integers(0, 256, (weight.size // block, n_bytes), dtype=np.uint8)
    blocks[:, :4] = 0x30 | blocks[:, :4] & 15  # scales of groups, from 0.5 to 2
    stored = blocks.reshape(*weight.shape[:-1], -1)
    whole = gguf.quants.dequantize(stored, KIND.NVFP4).astype(np.float32)
    n_experts = weight.shape[0] if weight.ndim == 3 else 1
    scales = (random.uniform(0.7, 1.3, n_experts) * weight.std() / whole.std()).astype(np.float32)
    further = {"scale": scales, "input_scale": np.full(n_experts, 3, np.float32)}
    return stored, whole * scales.reshape(-1, *[1] * (weight.ndim - 1)), further


def parts_of(key, weight, family):
    """Tensors of the file that make up a parameter: names that gguf knows, and what of the weight they are."""
    experts, _, which = key.partition(".experts.")
    if key.endswith("e_score_correction_bias"):
        return [(key.replace("_bias", ".bias"), weight)]
    if key.endswith("self_attn.sinks"):
        return [(key + ".weight", weight)]
    if not which:
        return [(key, weight)]
    name, is_bias = which.removesuffix("_bias"), which.endswith("_bias")
    if family == "gpt_oss" and not is_bias:
        weight = weight.transpose(0, 2, 1)
    ending = ".bias" if is_bias else ".weight"
    if name == "down_proj":
        return [(f"{experts}.experts.down_proj{ending}", weight)]
    half = weight.shape[1] // 2
    gate, up = ((weight[:, ::2], weight[:, 1::2]) if family == "gpt_oss" else (weight[:, :half], weight[:, half:]))
    return [(f"{experts}.experts.gate_proj{ending}", gate), (f"{experts}.experts.up_proj{ending}", up)]


def add_fields(writer, architecture, config):
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)

    def add(function, name, default=None):
        value = getattr(config, name, default)
        if value is not None:
            function(value)

    add(writer.add_context_length, "max_position_embeddings")
    add(writer.add_embedding_length, "hidden_size")
    add(writer.add_feed_forward_length, "intermediate_size")
    add(writer.add_block_count, "num_hidden_layers")
    add(writer.add_head_count, "num_attention_heads")
    add(writer.add_head_count_kv, "num_key_value_heads")
    add(writer.add_layer_norm_rms_eps, "rms_norm_eps")
    for name in ("layer_norm_eps", "norm_epsilon"):
        add(writer.add_layer_norm_eps, name)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if "head_dim" in config.to_dict() and config.head_dim:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if architecture in ("phi3", "stablelm", "glm4", "glm4moe", "granite", "smollm3", "cohere2"):
        writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1)))
    writer.add_rope_freq_base(rope["rope_theta"])
    if "sliding_attention" in config.rope_parameters:
        writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    if rope["rope_type"] == "longrope":
        original = rope["original_max_position_embeddings"]
        stretch = np.log(config.max_position_embeddings / original) / np.log(original)
        writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + stretch)))
    if architecture in ("gemma2", "gemma3", "cohere2", "gpt-oss", "phi3"):
        add(writer.add_sliding_window, "sliding_window")
    if architecture == "gemma2":
        add(writer.add_attn_logit_softcapping, "attn_logit_softcapping")
        add(writer.add_final_logit_softcapping, "final_logit_softcapping")
    for name in ("num_local_experts", "num_experts", "n_routed_experts"):
        if name in config.to_dict():
            add(writer.add_expert_count, name)
            break
    add(writer.add_expert_used_count, "num_experts_per_tok")
    add(writer.add_expert_feed_forward_length, "moe_intermediate_size",
        config.intermediate_size if architecture == "gpt-oss" else None)
    add(writer.add_expert_shared_feed_forward_length, "shared_expert_intermediate_size")
    if architecture == "glm4moe":
        add(writer.add_expert_shared_count, "n_shared_experts")
        add(writer.add_leading_dense_block_count, "first_k_dense_replace")
        add(writer.add_expert_weights_scale, "routed_scaling_factor")
        add(writer.add_expert_weights_norm, "norm_topk_prob")
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if architecture == "granite":
        add(writer.add_attention_scale, "attention_multiplier")
        add(writer.add_embedding_scale, "embedding_multiplier")
        add(writer.add_residual_scale, "residual_multiplier")
        add(writer.add_logit_scale, "logits_scaling")
    if architecture == "cohere2":
        add(writer.add_logit_scale, "logit_scale")
    if architecture == "stablelm":
        add(writer.add_parallel_residual, "use_parallel_residual")
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)


def add_rope_factors(writer, model, config):
    rope = config.rope_parameters
    if rope.get("rope_type") == "llama3":
        inverse = model.model.rotary_emb.inv_freq.numpy()
        plain = 1.0 / rope["rope_theta"] ** (np.arange(0, 2 * len(inverse), 2) / (2 * len(inverse)))
        writer.add_tensor("rope_freqs.weight", (plain / inverse).astype(np.float32))
    if rope.get("rope_type") == "longrope":
        for which in ("long", "short"):
            writer.add_tensor(f"rope_factors_{which}.weight", np.array(rope[f"{which}_factor"], np.float32))


def make(name, architecture, family, shapes, kind, kinds):
    directory = HERE / "quantized" / name
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "target").mkdir(parents=True)
    seed = sum(name.encode())
    random = np.random.default_rng(seed)
    config = transformers.AutoConfig.for_model(family, **shapes)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    make_quantized.randomise(model, seed)
    writer = gguf.GGUFWriter(directory / "target" / "model.gguf", architecture,
                             split_max_tensors=PARTS.get(name, 0))
    add_fields(writer, architecture, config)
    add_rope_factors(writer, model, config)
    number = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == architecture)
    stored_names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    stored = dict(model.named_parameters())
    for key, value in model.named_buffers():
        if key.endswith("e_score_correction_bias"):
            value.data = torch.randn(value.shape, generator=torch.Generator().manual_seed(seed)) * 0.1
            stored[key] = value
    for key, value in stored.items():
        weight = value.data.numpy().copy()
        for part_key, part in parts_of(key, weight, family):
            stored_name = stored_names.get_name(part_key, try_suffixes=(".weight", ".bias"))
            stem = stored_name.split(".")[-2]
            heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(stem)
            is_turned = architecture in TURNED and heads is not None
            is_plain = part.ndim == 1 or stored_name.endswith(".bias") or stem.startswith("ffn_gate_inp")
            of = KIND.F32 if is_plain else kinds.get(stored_name.removesuffix(".weight"), kinds.get(stem, kind))
            part_there, further = turned(part, heads) if is_turned else part, {}
            if of == KIND.NVFP4:
                written, whole, further = encoded_with_scales(part_there, random)
            else:
                written, whole = encoded(part_there, of, random)
            part[...] = turned(whole, heads, back=True) if is_turned else whole
            if architecture in SHIFTED and key.endswith("norm.weight"):
                written = written + 1
            writer.add_tensor(stored_name, written, raw_dtype=of)
            for ending, scales in further.items():
                writer.add_tensor(stored_name.replace(".weight", "." + ending), scales)
        value.data = torch.from_numpy(weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    make_quantized.expect(model, directory, seed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(CHECKPOINTS), metavar="NAME")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name in parser.parse_args().only:
        make(name, *CHECKPOINTS[name])
        print(name)


if __name__ == "__main__":
    main()
