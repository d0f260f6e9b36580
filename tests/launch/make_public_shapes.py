"""Writes tests/launch/public_shapes/*.json: configs and tensor names and shapes of public checkpoints, no weights.

The configs are in the spelling that the hub's files have, fields that change nothing left out. Names and shapes are
those of transformers' own models, built on the meta device, so nothing is downloaded and nothing allocated; tensors
of every layer are folded into one name with {i}. Beside them stand the tensors that old files carry and no model
reads. Needs torch and transformers; by hand only:

    python tests/launch/make_public_shapes.py
"""

import json
import pathlib
import re

import torch
from transformers import AutoConfig, AutoModelForCausalLM

OUTPUT = pathlib.Path(__file__).parent / "public_shapes"
LAYER = re.compile(r"(?<=\.)\d+(?=\.)")


def opt(hidden, heads, layers, **more):
    return {"_remove_final_layer_norm": False, "activation_function": "relu", "architectures": ["OPTForCausalLM"],
            "bos_token_id": 2, "do_layer_norm_before": True, "eos_token_id": 2, "ffn_dim": 4 * hidden,
            "hidden_size": hidden, "max_position_embeddings": 2048, "model_type": "opt", "num_attention_heads": heads,
            "num_hidden_layers": layers, "pad_token_id": 1, "prefix": "</s>", "torch_dtype": "float16",
            "transformers_version": "4.21.0.dev0", "use_cache": True, "vocab_size": 50272,
            "word_embed_proj_dim": hidden, **more}


def pythia(hidden, heads, layers, vocab=50304):
    return {"architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "gelu",
            "hidden_size": hidden, "initializer_range": 0.02, "intermediate_size": 4 * hidden, "layer_norm_eps": 1e-05,
            "max_position_embeddings": 2048, "model_type": "gpt_neox", "num_attention_heads": heads,
            "num_hidden_layers": layers, "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": False,
            "torch_dtype": "float16", "transformers_version": "4.24.0", "use_cache": True,
            "use_parallel_residual": True, "vocab_size": vocab}


def llama(hidden, inner, heads, kv_heads, layers, **more):
    return {"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
            "hidden_size": hidden, "initializer_range": 0.02, "intermediate_size": inner,
            "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": heads,
            "num_hidden_layers": layers, "num_key_value_heads": kv_heads, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
            "rope_scaling": None, "tie_word_embeddings": False, "torch_dtype": "float16",
            "transformers_version": "4.31.0.dev0", "use_cache": True, "vocab_size": 32000, **more}


def llama3(hidden, inner, heads, layers, **more):
    return llama(hidden, inner, heads, 8, layers, **{
        "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128001,
        "max_position_embeddings": 8192, "rope_theta": 500000.0, "torch_dtype": "bfloat16",
        "transformers_version": "4.40.0.dev0", "vocab_size": 128256, **more})


def llama31(hidden, inner, heads, layers, factor=8.0, **more):
    scaling = {"factor": factor, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
               "original_max_position_embeddings": 8192, "rope_type": "llama3"}
    return llama3(hidden, inner, heads, layers, max_position_embeddings=131072, mlp_bias=False, rope_scaling=scaling,
                  transformers_version="4.43.0.dev0", **more)


def falcon(hidden, heads, layers, **more):
    return {"alibi": False, "apply_residual_connection_post_layernorm": False, "architectures": ["FalconForCausalLM"],
            "attention_dropout": 0.0, "auto_map": {"AutoConfig": "configuration_falcon.FalconConfig"}, "bias": False,
            "bos_token_id": 11, "eos_token_id": 11, "hidden_dropout": 0.0, "hidden_size": hidden,
            "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "falcon", "multi_query": True,
            "new_decoder_architecture": False, "num_attention_heads": heads, "num_hidden_layers": layers,
            "parallel_attn": True, "torch_dtype": "bfloat16", "transformers_version": "4.27.4", "use_cache": True,
            "vocab_size": 65024, **more}


def qwen25(hidden, inner, heads, kv_heads, layers, **more):
    return {"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
            "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": hidden, "initializer_range": 0.02,
            "intermediate_size": inner, "max_position_embeddings": 131072, "max_window_layers": layers,
            "model_type": "qwen2", "num_attention_heads": heads, "num_hidden_layers": layers,
            "num_key_value_heads": kv_heads, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072,
            "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.40.1",
            "use_cache": True, "use_mrope": False, "use_sliding_window": False, "vocab_size": 152064, **more}


def small_qwen25(*shapes, **more):
    return qwen25(*shapes, tie_word_embeddings=True, vocab_size=151936, **more)


def gpt2(hidden, heads, layers):
    return {"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
            "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
            "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": hidden, "n_head": heads,
            "n_layer": layers, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": None,
            "summary_first_dropout": 0.1, "summary_proj_to_labels": True, "summary_type": "cls_index",
            "summary_use_proj": True, "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
            "vocab_size": 50257}


MISTRAL = llama(4096, 14336, 32, 8, 32, architectures=["MistralForCausalLM"], max_position_embeddings=32768,
                model_type="mistral", rope_theta=10000.0, sliding_window=4096, torch_dtype="bfloat16",
                transformers_version="4.34.0.dev0")
QWEN3 = qwen25(4096, 12288, 32, 8, 36, architectures=["Qwen3ForCausalLM"], attention_bias=False, eos_token_id=151645,
               head_dim=128, max_position_embeddings=40960, model_type="qwen3", rope_scaling=None, sliding_window=None,
               transformers_version="4.51.0", vocab_size=151936)
GEMMA = {"architectures": ["GemmaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 2,
         "eos_token_id": 1, "head_dim": 256, "hidden_act": "gelu", "hidden_activation": None, "hidden_size": 2048,
         "initializer_range": 0.02, "intermediate_size": 16384, "max_position_embeddings": 8192, "model_type": "gemma",
         "num_attention_heads": 8, "num_hidden_layers": 18, "num_key_value_heads": 1, "pad_token_id": 0,
         "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
         "transformers_version": "4.38.0.dev0", "use_cache": True, "vocab_size": 256000}
GEMMA2 = {**GEMMA, "architectures": ["Gemma2ForCausalLM"], "attn_logit_softcapping": 50.0,
          "cache_implementation": "hybrid", "final_logit_softcapping": 30.0, "hidden_act": "gelu_pytorch_tanh",
          "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 3584, "intermediate_size": 14336,
          "model_type": "gemma2", "num_attention_heads": 16, "num_hidden_layers": 42, "num_key_value_heads": 8,
          "query_pre_attn_scalar": 256, "sliding_window": 4096, "sliding_window_size": 4096,
          "torch_dtype": "float32", "transformers_version": "4.42.0.dev0"}
PHI2 = {"architectures": ["PhiForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 50256, "embd_pdrop": 0.0,
        "eos_token_id": 50256, "hidden_act": "gelu_new", "hidden_size": 2560, "initializer_range": 0.02,
        "intermediate_size": 10240, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048, "model_type": "phi",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "partial_rotary_factor": 0.4,
        "qk_layernorm": False, "resid_pdrop": 0.1, "rope_scaling": None, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "torch_dtype": "float16", "transformers_version": "4.37.0", "use_cache": True,
        "vocab_size": 51200}

# The hub's file says of longrope 48 numbers each; which ones changes no shape.
PHI4_MINI = {"architectures": ["Phi3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
             "bos_token_id": 199999, "embd_pdrop": 0.0, "eos_token_id": 199999, "hidden_act": "silu",
             "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 8192,
             "max_position_embeddings": 131072, "model_type": "phi3", "num_attention_heads": 24,
             "num_hidden_layers": 32, "num_key_value_heads": 8, "original_max_position_embeddings": 4096,
             "pad_token_id": 199999, "partial_rotary_factor": 0.75, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
             "rope_scaling": {"long_factor": [1.0] * 48, "short_factor": [1.0] * 48, "type": "longrope"},
             "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": True,
             "torch_dtype": "bfloat16", "transformers_version": "4.45.0", "use_cache": True, "vocab_size": 200064}


def gpt_oss(layers, experts):
    return {"architectures": ["GptOssForCausalLM"], "attention_bias": True, "attention_dropout": 0.0,
            "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880,
            "initial_context_length": 4096, "initializer_range": 0.02, "intermediate_size": 2880,
            "layer_types": ["sliding_attention", "full_attention"] * (layers // 2),
            "max_position_embeddings": 131072, "model_type": "gpt_oss", "num_attention_heads": 64,
            "num_experts_per_tok": 4, "num_hidden_layers": layers, "num_key_value_heads": 8,
            "num_local_experts": experts, "output_router_logits": False, "pad_token_id": 199999, "rms_norm_eps": 1e-05,
            "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
                             "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": False},
            "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0,
            "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.55.0.dev0",
            "use_cache": True, "vocab_size": 201088}


MODELS = {
    "opt-125m": opt(768, 12, 12), "opt-1.3b": opt(2048, 32, 24), "opt-2.7b": opt(2560, 32, 32),
    "opt-350m": opt(1024, 16, 24, do_layer_norm_before=False, word_embed_proj_dim=512),
    "opt-6.7b": opt(4096, 32, 32), "opt-13b": opt(5120, 40, 40), "opt-30b": opt(7168, 56, 48),
    "opt-66b": opt(9216, 72, 64),
    "pythia-70m": pythia(512, 8, 6), "pythia-160m": pythia(768, 12, 12), "pythia-410m": pythia(1024, 16, 24),
    "pythia-1b": pythia(2048, 8, 16), "pythia-1.4b": pythia(2048, 16, 24), "pythia-2.8b": pythia(2560, 32, 32),
    "pythia-6.9b": pythia(4096, 32, 32, 50432), "pythia-12b": pythia(5120, 40, 36, 50688),
    "llama-2-7b": llama(4096, 11008, 32, 32, 32), "llama-2-13b": llama(5120, 13824, 40, 40, 40),
    "llama-2-70b": llama(8192, 28672, 64, 8, 80),
    "llama-3-8b": llama3(4096, 14336, 32, 32), "llama-3-70b": llama3(8192, 28672, 64, 80),
    "llama-3.1-8b": llama31(4096, 14336, 32, 32), "llama-3.1-70b": llama31(8192, 28672, 64, 80),
    "llama-3.2-1b": llama31(2048, 8192, 32, 16, 32.0, head_dim=64, tie_word_embeddings=True),
    "falcon-7b": falcon(4544, 71, 32),
    "falcon-40b": falcon(8192, 128, 60, new_decoder_architecture=True, num_kv_heads=8),
    "qwen2.5-0.5b": small_qwen25(896, 4864, 14, 2, 24, max_position_embeddings=32768, sliding_window=32768),
    "qwen2.5-1.5b": small_qwen25(1536, 8960, 12, 2, 28), "qwen2.5-3b": small_qwen25(2048, 11008, 16, 2, 36),
    "qwen2.5-7b": qwen25(3584, 18944, 28, 4, 28), "qwen2.5-14b": qwen25(5120, 13824, 40, 8, 48, rms_norm_eps=1e-05),
    "qwen2.5-32b": qwen25(5120, 27648, 40, 8, 64, rms_norm_eps=1e-05),
    "qwen2.5-72b": qwen25(8192, 29568, 64, 8, 80, rms_norm_eps=1e-05),
    "gpt2": gpt2(768, 12, 12), "gpt2-medium": gpt2(1024, 16, 24), "gpt2-large": gpt2(1280, 20, 36),
    "gpt2-xl": gpt2(1600, 25, 48),
    "mistral-7b": MISTRAL, "qwen3-8b": QWEN3, "gemma-2b": GEMMA, "gemma-2-9b": GEMMA2, "phi-2": PHI2,
    "phi-4-mini": PHI4_MINI, "gpt-oss-20b": gpt_oss(24, 32), "gpt-oss-120b": gpt_oss(36, 128),
}

DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def extras(name, config, dtype):
    """What the hub's files hold beside the weights: [name, dtype, shape]."""
    kind = config["model_type"]
    if kind == "gpt2":
        return [["h.{i}.attn.bias", "F32", [1, 1, 1024, 1024]]]
    if kind == "gpt_neox":
        rotary = config["hidden_size"] // config["num_attention_heads"] // 4
        stem = "gpt_neox.layers.{i}.attention."
        return [[stem + "bias", "U8", [1, 1, 2048, 2048]], [stem + "masked_bias", dtype, []],
                [stem + "rotary_emb.inv_freq", dtype, [rotary // 2]]]
    if kind == "falcon":
        return [["lm_head.weight", dtype, [config["vocab_size"], config["hidden_size"]]]]
    if name.startswith("llama-2"):
        return [["model.layers.{i}.self_attn.rotary_emb.inv_freq", "F32", [64]]]
    return []


def folded(state, layers):
    """[[name, shape]], a name with {i} standing for that of every layer."""
    found = {}
    for name, tensor in state.items():
        match = LAYER.search(name)
        stem = name[:match.start()] + "{i}" + name[match.end():] if match else name
        found.setdefault(stem, []).append(list(tensor.shape))
    for stem, shapes in found.items():
        assert len(shapes) == (layers if "{i}" in stem else 1), stem
        assert all(shape == shapes[0] for shape in shapes), stem
    return [[stem, shapes[0]] for stem, shapes in found.items()]


def describe(name, config):
    fields = json.loads(json.dumps(config))  # transformers completes rope_scaling in place
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(fields.pop("model_type"), **fields))
    parameters = dict(model.named_parameters())  # tied ones once; buffers are not parameters
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    prefix = "transformer." if config["model_type"] == "gpt2" else ""  # which the hub's files lack
    head = "embed_out." if config["model_type"] == "gpt_neox" else "lm_head."  # as files have it
    tensors = folded({key.removeprefix(prefix).replace("lm_head.", head): value for key, value in parameters.items()},
                     layers)
    dtype = DTYPES[config.get("torch_dtype", "float32")]
    return {"config": config, "parameters": sum(tensor.numel() for tensor in parameters.values()), "layers": layers,
            "dtype": dtype, "tensors": tensors, "extras": extras(name, config, dtype)}


def main():
    OUTPUT.mkdir(exist_ok=True)
    for name, config in MODELS.items():
        shapes = describe(name, config)
        lines = [f' "{key}": {json.dumps(value)}' for key, value in shapes.items()]
        (OUTPUT / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
        print(f"{name:14} {shapes['parameters']:>15,}")


if __name__ == "__main__":
    main()
