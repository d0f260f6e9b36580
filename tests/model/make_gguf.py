"""Writes quantized/gguf-*: tiny GGUF files, and what transformers says that their dequantised weights compute.

PyPI's gguf names tensors, writes and dequantises them; their blocks are random. What it leaves to converters (which weights
are turned, parted or shifted, which fields are written) is as llama.cpp's has it. Run by hand when the goldens must change;
the tests read its output only.

    python tests/model/make_gguf.py [--only NAME ...]        (torch, transformers, gguf)

quantized/NAME/target/model.gguf, or its parts, of which git has the recipes (recipes.py)
quantized/NAME/expected.json, target.logits   as families/ has them
"""

import argparse
import math
import shutil

import gguf
import numpy as np
import torch
import transformers

import make_quantized
from make_quantized import HERE, VOCAB, llama
from recipes import Recipe

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


# Where a block has its scale, and of some its minimum, which is so many times as large that weights lie around 0.
SCALES = {KIND.Q4_1: (0, 2, -7.5), KIND.Q5_0: (0,), KIND.Q5_1: (0, 2, -15.5), KIND.Q2_K: (80, 82, 1.5), KIND.Q3_K: (108,),
          KIND.Q5_K: (0, 2, 15.5), KIND.IQ4_NL: (0,), KIND.IQ4_XS: (0,), KIND.IQ3_S: (0,), KIND.IQ3_XXS: (0,),
          KIND.IQ2_S: (0,), KIND.IQ2_XS: (0,), KIND.IQ2_XXS: (0,), KIND.IQ1_S: (0,), KIND.TQ1_0: (52,), KIND.TQ2_0: (64,)}


def usual_size(kind):
    """Of weights in random blocks whose scale is 1."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(0).integers(0, 256, (1000, size), dtype=np.uint8)
    at, *of_minimum = SCALES[kind]
    for place, value in [(at, 1), *zip(of_minimum[:1], of_minimum[1:])]:
        blocks[:, place:place + 2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)
    return np.sqrt((gguf.quants.dequantize(blocks, kind) ** 2).mean())


def fields_of(kind, deviation):
    """What is not wholly random of blocks of weights of about that size."""
    if kind == KIND.NVFP4:  # scales of groups, from 0.5 to 2; the tensor has one more
        return [f"{at}:u8:48:16" for at in range(4)]
    if kind == KIND.IQ1_M:  # the scale lies in the upper 4 bits of four words; weights are some 3 times as large
        bits = int(np.frombuffer(np.float16(deviation / 3).tobytes(), "<u2")[0])
        return [f"{49 + 2 * i}:u8:{(bits >> 4 * i & 15) << 4}:16" for i in range(4)]
    at, *of_minimum = SCALES[kind]
    scale = deviation / usual_size(kind)
    share = 0.2 if of_minimum else 0.6  # lest a block's weights lie all on one side of 0
    return ["{}:f16:{}:{}".format(place, *make_quantized.around(value, share))
            for place, value in [(at, scale), *zip(of_minimum[:1], (ratio * scale for ratio in of_minimum[1:]))]]


def described(name, shape, kind):
    """How a recipe makes the bytes of a tensor, their type and shape there. Blocks are random."""
    if kind in (KIND.F32, KIND.F16, KIND.BF16):
        return kind.name, list(shape), make_quantized.uniform(name, shape)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    deviation = make_quantized.size_of(name, shape)
    known = {
        KIND.Q4_0: [f"0:f16:{deviation / 2.7:.4g}:0"],
        KIND.Q8_0: ["0:f16:{}:{}".format(*make_quantized.around(deviation / 74))],
        KIND.Q4_K: ["0:f16:{}:{}".format(*make_quantized.around(deviation / 180)),
                    "2:f16:{}:{}".format(*make_quantized.around(deviation / 25))],
        KIND.Q6_K: [f"208:f16:{deviation / 800:.4g}:0"],
        KIND.MXFP4: [f"0:u8:{round(math.log2(deviation / 6)) + 127}:3"],
    }
    fields = known.get(kind) or fields_of(kind, deviation)
    return "U8", [*shape[:-1], shape[-1] // block * size], ("blocks", size, *fields)


def numbers(stored, dtype, shape, kind):
    """Those that the file's bytes stand for."""
    as_numpy = {"F32": "<f4", "F16": "<f2"}.get(dtype, "u1")
    stored = np.frombuffer(stored, as_numpy).reshape(*shape[:-1], -1)
    return stored, gguf.quants.dequantize(stored, kind).astype(np.float32)


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
        writer.add_numbers("rope_freqs.weight", (plain / inverse).astype(np.float32))
    if rope.get("rope_type") == "longrope":
        for which in ("long", "short"):
            writer.add_numbers(f"rope_factors_{which}.weight", np.array(rope[f"{which}_factor"], np.float32))


class Writer(gguf.GGUFWriter):
    """Keeps what the recipe says of each tensor."""

    def __init__(self, name, directory, architecture):
        super().__init__(directory / "model.gguf", architecture, split_max_tensors=PARTS.get(name, 0))
        self.recipe, self.lines = Recipe("parts", name), {}

    def add_numbers(self, name, values):
        self.lines[name] = (Recipe.add_bytes, "F32", list(values.shape), values.tobytes())
        self.add_tensor(name, values)

    def add_random(self, name, of, shape, kind):
        """What it stands for."""
        dtype, shape, how = described(of, shape, kind)
        self.lines[name] = (Recipe.add, dtype, shape, *how)
        stored, values = numbers(self.recipe.add(name, dtype, shape, *how), dtype, shape, kind)
        self.add_tensor(name, stored, raw_dtype=kind)
        return values


    def add_scales(self, name, values, deviation):
        """NVFP4's one more for the tensor, or for each expert, and what belongs to its activations."""
        n_experts = values.shape[0] if values.ndim == 3 else 1
        factors = np.linspace(0.7, 1.3, n_experts) if n_experts > 1 else np.ones(1)
        scales = (factors * deviation / values.std()).astype(np.float32)
        self.add_numbers(name.replace(".weight", ".scale"), scales)
        self.add_numbers(name.replace(".weight", ".input_scale"), np.full(n_experts, 3, np.float32))
        return values * scales.reshape(-1, *[1] * (values.ndim - 1))


def write_recipe(file, writer):
    """Of a written part, whose bytes beside those of tensors are kept as they are."""
    reader, contents = gguf.GGUFReader(file), file.read_bytes()
    recipe, end = Recipe("parts", writer.recipe.key), 0
    for tensor in reader.tensors:
        between = contents[end:tensor.data_offset]
        if between:
            recipe.add_bytes(f"before:{tensor.name}", "U8", [len(between)], between)
        add, *how = writer.lines[tensor.name]
        data = add(recipe, tensor.name, *how)
        end = tensor.data_offset + len(data)
    if contents[end:]:
        recipe.add_bytes("end", "U8", [len(contents) - end], contents[end:])
    assert recipe.contents() == contents, file
    recipe.write(file)


def make(name, architecture, family, shapes, kind, kinds):
    directory = HERE / "quantized" / name
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "target").mkdir(parents=True)
    config = transformers.AutoConfig.for_model(family, **shapes)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    writer = Writer(name, directory / "target", architecture)
    add_fields(writer, architecture, config)
    add_rope_factors(writer, model, config)
    number = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == architecture)
    stored_names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    stored = {**dict(model.named_parameters()), **{key: value for key, value in model.named_buffers()
                                                   if key.endswith("e_score_correction_bias")}}
    for key, value in stored.items():
        weight = np.zeros(value.shape, np.float32)
        for part_key, part in parts_of(key, weight, family):
            stored_name = stored_names.get_name(part_key, try_suffixes=(".weight", ".bias"))
            stem = stored_name.split(".")[-2]
            heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(stem)
            is_turned = architecture in TURNED and heads is not None
            is_plain = part.ndim == 1 or stored_name.endswith(".bias") or stem.startswith("ffn_gate_inp")
            of = KIND.F32 if is_plain else kinds.get(stored_name.removesuffix(".weight"), kinds.get(stem, kind))
            whole = writer.add_random(stored_name, key, part.shape, of)
            if of == KIND.NVFP4:
                whole = writer.add_scales(stored_name, whole, make_quantized.size_of(key, part.shape))
            part[...] = turned(whole, heads, back=True) if is_turned else whole
            if architecture in SHIFTED and key.endswith("norm.weight"):
                part -= 1
        value.data = torch.from_numpy(weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for file in (directory / "target").glob("*.gguf"):
        write_recipe(file, writer)
    make_quantized.expect(model, directory, sum(name.encode()))


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
