"""Writes families/: a tiny target and draft of every model family, and what transformers says that they compute.

The weights are random, of recipes (recipes.py), which are tried until everything below holds. Embeddings, heads and last norms of target and draft
begin with the same numbers and may weigh more than the layers, so that the two often agree. Shapes are awkward on purpose (odd vocabularies, heads that
do not divide by ranks); norms and biases are random, so that leaving one out shows. Drafts are spelled as older files on the hub are. Run by hand
when the goldens must change; the tests read its output only.

    python tests/model/make_families.py [--seeds N] [--only NAME ...]        (torch, transformers, safetensors)

Seed 0 goes to families/, which is committed; seed K to families-seed-K/, which git ignores and the tests read as
well where it is there. The search may end elsewhere on another machine: commit all of families/ together.

families/NAME/target, draft   config.json and the recipe of model.safetensors; target also a tokenizer.json, of the pair's vocabulary
families/NAME/expected.json   by model: number of parameters, and texts with token ids, positions whose logits are
                              kept, greedy continuation, and its margins as shares of the largest logit
families/NAME/target.logits, draft.logits   float32, little-endian: those rows, text after text
"""

import argparse
import dataclasses
import json
import math
import pathlib
import re
import shutil
import tempfile

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from recipes import Recipe

HERE = pathlib.Path(__file__).parent
CONTEXT = 104         # positions, where a family has a table of them
GREEDY_TOKENS = 24
TEXT_LENGTHS = (67, 48)
SMALLEST_MARGIN = 2e-3  # of a greedy step's two best logits, as a share of the largest: float32 must not part there
SMALLEST_EFFECT = 2e-3  # of leaving out a tensor, as a share of the row's largest logit
SMALLEST_CHANGE = 1.5e-4  # of changing a setting; the two kinds of GELU are that close
FLOAT32_BOUND = 3e-5    # transformers in float32 against itself in float64
AGREEMENT = (0.1, 0.9)  # of target and draft over the target's texts
ATTEMPTS = 60
SIZES = ((1, 1), (1, 0.5), (2, 0.5), (0.5, 0.3), (4, 0.5), (0.2, 0.2))  # of embeddings, and of what layers add to them: tried in turn
OUTPUTS = ("o_proj", "out_proj", "c_proj", "down_proj", "dense", "dense_4h_to_h", "fc2", "w2")
TYPES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32", torch.uint8: "U8"}
FOUND = ("embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight")  # embeddings
HEADS = ("lm_head.weight", "embed_out.weight")
LAST_NORMS = ("model.norm", "language_model.norm", "final_layernorm", "decoder.final_layer_norm", "gpt_neox.final_layer_norm", "ln_f", "norm_f")
TABLES = (".attn.bias", ".attention.bias", "masked_bias", "inv_freq")  # of old files, which nobody reads


@dataclasses.dataclass
class Model:
    shapes: dict               # of the config
    old: bool = False          # spelled as old files are
    dtype: torch.dtype = torch.bfloat16  # in the file
    fused: bool = False        # all experts of a layer in one tensor, as modules have them
    nested: bool = False       # as the text part of a model that reads images too


@dataclasses.dataclass
class Pair:
    family: str                # config.json's model_type
    target: Model
    draft: Model
    known: int = 0             # entries of the tokenizer; 0: the target's vocabulary
    shows: list = dataclasses.field(default_factory=list)  # changes of the target's config that must move its logits
    sizes: tuple = SIZES


def rope(kind, theta=1000.0, **settings):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **settings}}


def gpt2(layers, width, heads, inner, vocab=97, **more):
    return dict(n_layer=layers, n_embd=width, n_head=heads, n_inner=inner, vocab_size=vocab, n_positions=CONTEXT,
                **more)


def opt(layers, width, heads, inner, vocab=101, **more):
    return dict(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, ffn_dim=inner,
                vocab_size=vocab, max_position_embeddings=CONTEXT, **more)


def common(layers, width, heads, inner, vocab=101, kv=None, **more):
    """The names that most families share."""
    shapes = dict(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, intermediate_size=inner,
                  vocab_size=vocab, max_position_embeddings=128)
    if kv is not None:
        shapes["num_key_value_heads"] = kv
    return {**shapes, **more}


def falcon(layers, width, heads, inner, vocab=103, **more):
    return dict(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, ffn_hidden_size=inner,
                vocab_size=vocab, max_position_embeddings=128, **more)


LATENT = dict(kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=16)
DELTA_NET = dict(linear_key_head_dim=12, linear_value_head_dim=16)
SHORT = {"max_position_embeddings": 32}  # dynamic: what is not stretched
PAIRS = {
    "gpt2": Pair("gpt2", Model(gpt2(2, 50, 5, 60)), Model(gpt2(1, 30, 3, None), old=True)),
    "opt": Pair("opt", Model(opt(2, 42, 7, 60), dtype=torch.float16), Model(opt(1, 36, 3, 52), old=True)),
    "opt-post-norm": Pair(
        "opt", Model(opt(2, 50, 5, 76, do_layer_norm_before=False, word_embed_proj_dim=28)),
        Model(opt(1, 48, 3, 52, do_layer_norm_before=False, word_embed_proj_dim=26), old=True)),
    "neox": Pair(
        "gpt_neox", Model(common(2, 40, 5, 72, 128, **rope("default", partial_rotary_factor=0.25))),
        Model(common(1, 48, 3, 60, 112), old=True), known=101,
        shows=[{"use_parallel_residual": False}, rope("default", partial_rotary_factor=0.5)]),
    "neox-sequential": Pair(
        "gpt_neox", Model(common(2, 40, 2, 72, 128, use_parallel_residual=False,
                                 **rope("default", 10000.0, partial_rotary_factor=0.5))),
        Model(common(1, 36, 3, 60, 112, use_parallel_residual=False, attention_bias=False,
                     **rope("default", 500.0, partial_rotary_factor=1.0)), old=True),
        known=101),
    "llama": Pair("llama", Model(common(2, 40, 8, 60, 109, kv=4, head_dim=12)),
                  Model(common(1, 36, 3, 52, 109, tie_word_embeddings=True), old=True)),
    "llama-bias": Pair(
        "llama", Model(common(2, 42, 7, 36, kv=1, attention_bias=True, mlp_bias=True), dtype=torch.float32),
        Model(common(1, 36, 3, 52, attention_bias=True), old=True)),
    "llama-linear": Pair(
        "llama", Model(common(2, 40, 5, 52, **rope("linear", factor=2.5))),
        Model(common(1, 36, 3, 52, **rope("linear", factor=4.0)), old=True), shows=[rope("linear", factor=2.4)]),
    "llama-dynamic": Pair(
        "llama", Model(common(2, 40, 2, 52, **SHORT, **rope("dynamic", factor=4.0))),
        Model(common(1, 36, 3, 52, **SHORT, **rope("dynamic", factor=4.0)), old=True),
        shows=[rope("dynamic", factor=3.0)]),
    "llama-llama3": Pair(
        "llama", Model(common(2, 40, 2, 52, **rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                   original_max_position_embeddings=64))),
        Model(common(1, 36, 3, 52, **rope("llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                          original_max_position_embeddings=32)), old=True),
        shows=[rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=3.0,
                    original_max_position_embeddings=64)]),
    "llama-yarn": Pair(
        "llama", Model(common(2, 40, 2, 52, **rope("yarn", factor=4.0, original_max_position_embeddings=32))),
        Model(common(1, 48, 3, 52, **rope("yarn", factor=2.0, original_max_position_embeddings=64, beta_fast=4.0,
                                          beta_slow=2.0, attention_factor=1.25)), old=True),
        shows=[rope("yarn", factor=4.0, original_max_position_embeddings=32, attention_factor=1.0),
               rope("yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=1.5),
               rope("yarn", factor=4.0, original_max_position_embeddings=32, truncate=False)]),
    "mistral": Pair(
        "mistral", Model(common(2, 42, 6, 52, kv=3, head_dim=8, sliding_window=13)),
        Model(common(1, 36, 3, 52, kv=1, sliding_window=20), old=True), shows=[{"sliding_window": 14}]),
    "qwen2": Pair(
        "qwen2", Model(common(3, 48, 6, 44, 107, kv=2, use_sliding_window=True, sliding_window=19,
                              max_window_layers=1)),
        Model(common(2, 36, 3, 44, 107, kv=1, use_sliding_window=True, sliding_window=17, max_window_layers=1,
                     tie_word_embeddings=True), old=True),
        shows=[{"use_sliding_window": False, "layer_types": ["full_attention"] * 3},
               {"layer_types": ["sliding_attention"] * 3}, {"sliding_window": 20}]),
    "qwen3": Pair("qwen3", Model(common(2, 42, 6, 52, 107, kv=2, head_dim=16)),
                  Model(common(1, 36, 3, 44, 107, kv=3, head_dim=8, tie_word_embeddings=True), old=True)),
    "falcon-7b": Pair(
        "falcon", Model(falcon(2, 72, 9, 60)), Model(falcon(1, 30, 3, None), old=True),
        shows=[{"activation": "gelu_new"}]),
    "falcon-40b": Pair(
        "falcon", Model(falcon(2, 48, 6, 76, new_decoder_architecture=True, num_kv_heads=2, bias=False)),
        Model(falcon(1, 40, 5, 52, new_decoder_architecture=True, num_kv_heads=1, num_ln_in_parallel_attn=1),
              old=True)),
    "falcon-rw": Pair(
        "falcon", Model(falcon(2, 48, 6, 76, alibi=True, bias=True, multi_query=False, parallel_attn=False)),
        Model(falcon(1, 36, 3, 52, alibi=True, bias=True, multi_query=False, parallel_attn=True), old=True)),
    "falcon-sequential": Pair(
        "falcon", Model(falcon(2, 40, 5, 52, multi_query=True, parallel_attn=False, bias=True)),
        Model(falcon(1, 36, 3, 52, multi_query=False, parallel_attn=False), old=True)),
    "gemma": Pair("gemma", Model(common(2, 45, 5, 52, 113, kv=1, head_dim=12)),
                  Model(common(1, 36, 3, 44, 113, kv=3, head_dim=8), old=True)),
    "gemma2": Pair(
        "gemma2", Model(common(3, 42, 6, 44, 113, kv=2, head_dim=8, sliding_window=11, query_pre_attn_scalar=13,
                               attn_logit_softcapping=2.0, final_logit_softcapping=6.0)),
        Model(common(2, 36, 3, 44, 113, kv=1, head_dim=10, sliding_window=18, query_pre_attn_scalar=12,
                     attn_logit_softcapping=3.0, final_logit_softcapping=8.0), old=True),
        shows=[{"attn_logit_softcapping": None}, {"attn_logit_softcapping": 2.5}, {"final_logit_softcapping": None},
               {"query_pre_attn_scalar": 8}, {"sliding_window": 12},
               {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}]),
    "mixtral": Pair(
        "mixtral", Model(common(2, 40, 5, 24, kv=1, num_local_experts=5, num_experts_per_tok=2, sliding_window=17)),
        Model(common(1, 36, 3, 20, kv=3, num_local_experts=3, num_experts_per_tok=2), old=True),
        shows=[{"num_experts_per_tok": 1}, {"sliding_window": 18}], sizes=((0.35, 1), (0.5, 1))),
    "qwen2-moe": Pair(
        "qwen2_moe", Model(common(3, 40, 5, 36, 107, kv=5, num_experts=6, num_experts_per_tok=3,
                                  moe_intermediate_size=20, shared_expert_intermediate_size=28, mlp_only_layers=[1])),
        Model(common(2, 36, 3, 44, 107, kv=1, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                     shared_expert_intermediate_size=36, decoder_sparse_step=2, norm_topk_prob=True,
                     tie_word_embeddings=True), old=True),
        shows=[{"num_experts_per_tok": 2}, {"norm_topk_prob": True}]),
    "qwen3-moe": Pair(
        "qwen3_moe", Model(common(2, 40, 6, 36, 107, kv=2, head_dim=12, num_experts=7, num_experts_per_tok=3,
                                  moe_intermediate_size=24, norm_topk_prob=True)),
        Model(common(2, 36, 3, 40, 107, kv=3, head_dim=8, num_experts=3, num_experts_per_tok=2,
                     moe_intermediate_size=36, mlp_only_layers=[0], tie_word_embeddings=True), old=True, fused=True),
        shows=[{"num_experts_per_tok": 4}, {"norm_topk_prob": False}]),
    "glm4": Pair(
        "glm4", Model(common(2, 40, 6, 52, 103, kv=2, head_dim=12, **rope("default", partial_rotary_factor=0.5))),
        Model(common(1, 36, 3, 44, 103, kv=1, head_dim=8, attention_bias=False,
                     **rope("default", partial_rotary_factor=1.0)), old=True),
        shows=[rope("default", partial_rotary_factor=1.0)]),
    "glm4-moe": Pair(
        "glm4_moe", Model(common(3, 40, 6, 36, 103, kv=2, head_dim=12, attention_bias=True, use_qk_norm=True,
                                 n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=20, n_group=4,
                                 topk_group=2, routed_scaling_factor=1.75, first_k_dense_replace=1,
                                 **rope("default", partial_rotary_factor=0.5))),
        Model(common(2, 36, 3, 44, 103, kv=1, head_dim=8, n_routed_experts=4, num_experts_per_tok=2,
                     moe_intermediate_size=24, n_shared_experts=2, norm_topk_prob=False,
                     **rope("default", partial_rotary_factor=0.5)), old=True, fused=True),
        shows=[{"num_experts_per_tok": 2}, {"norm_topk_prob": False}, {"n_group": 2, "topk_group": 1},
               {"topk_group": 3}, {"routed_scaling_factor": 1.5}]),
    "deepseek-v2": Pair(
        "deepseek_v2", Model(common(3, 40, 5, 36, 103, kv=5, **LATENT, q_lora_rank=24, n_routed_experts=6,
                                    num_experts_per_tok=3, moe_intermediate_size=20, n_shared_experts=1,
                                    topk_method="group_limited_greedy", n_group=3, topk_group=2,
                                    routed_scaling_factor=2.5, first_k_dense_replace=1)),
        Model(common(2, 36, 3, 44, 103, kv=3, **LATENT, q_lora_rank=None, n_routed_experts=4, num_experts_per_tok=2,
                     moe_intermediate_size=24, n_shared_experts=2,
                     **rope("yarn", factor=4.0, original_max_position_embeddings=32, mscale=0.7,
                            mscale_all_dim=0.9)), old=True),
        shows=[{"num_experts_per_tok": 2}, {"topk_method": "greedy"}, {"topk_group": 3},
               {"routed_scaling_factor": 2.0}]),
    "deepseek-v3": Pair(
        "deepseek_v3", Model(common(3, 40, 5, 36, 103, kv=5, **LATENT, q_lora_rank=24, n_routed_experts=8,
                                    num_experts_per_tok=3, moe_intermediate_size=20, n_shared_experts=1, n_group=4,
                                    topk_group=2, routed_scaling_factor=1.5, first_k_dense_replace=1,
                                    **rope("yarn", factor=4.0, original_max_position_embeddings=32, mscale=1.0,
                                           mscale_all_dim=1.0))),
        Model(common(2, 36, 3, 44, 103, kv=3, **{**LATENT, "qk_nope_head_dim": 10, "kv_lora_rank": 32},
                     q_lora_rank=None, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
                     n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=1, rope_interleave=False,
                     norm_topk_prob=False), old=True),
        shows=[{"num_experts_per_tok": 2}, {"topk_group": 3}, {"rope_interleave": False},
               rope("yarn", factor=4.0, original_max_position_embeddings=32, mscale=1.0, mscale_all_dim=0.5)]),
    "olmo2": Pair("olmo2", Model(common(2, 42, 7, 52, 103, kv=7)),
                  Model(common(1, 40, 4, 44, 103, kv=2), old=True)),
    "granite": Pair(
        "granite", Model(common(2, 48, 6, 52, 103, kv=3, embedding_multiplier=3.0, residual_multiplier=0.4,
                                attention_multiplier=0.2, logits_scaling=2.5)),
        Model(common(1, 36, 3, 44, 103, kv=1, embedding_multiplier=2.0, residual_multiplier=1.5, attention_bias=True,
                     attention_multiplier=0.4, tie_word_embeddings=True), old=True),
        shows=[{"embedding_multiplier": 2.5}, {"residual_multiplier": 0.5}, {"attention_multiplier": 0.3}]),
    "smollm3": Pair(
        "smollm3", Model(common(3, 48, 6, 44, 103, kv=2, no_rope_layers=[1, 0, 1])),
        Model(common(2, 36, 3, 44, 103, kv=3, no_rope_layer_interval=2), old=True),
        shows=[{"no_rope_layers": [1, 1, 1]}, {"no_rope_layers": [1, 0, 0]}]),
    "starcoder2": Pair(
        "starcoder2", Model(common(2, 40, 5, 60, 103, kv=1, sliding_window=21)),
        Model(common(1, 36, 3, 52, 103, kv=3, use_bias=False), old=True), shows=[{"sliding_window": 22}]),
    "stablelm": Pair(
        "stablelm", Model(common(2, 48, 6, 52, 103, kv=2, use_qkv_bias=True,
                                 **rope("default", partial_rotary_factor=0.25))),
        Model(common(1, 48, 3, 44, 103, kv=1, use_parallel_residual=True,
                     **rope("default", partial_rotary_factor=0.5)), old=True),
        shows=[rope("default", partial_rotary_factor=0.5)]),
    "cohere2": Pair(
        "cohere2", Model(common(3, 42, 7, 44, 103, kv=7, sliding_window=13, logit_scale=0.5,
                                layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
        Model(common(2, 40, 4, 44, 103, kv=2, sliding_window=20, logit_scale=1.5, sliding_window_pattern=2), old=True),
        shows=[{"sliding_window": 14}, {"layer_types": ["sliding_attention"] * 3}]),
    "gemma3": Pair(
        "gemma3_text", Model(common(3, 42, 6, 44, 113, kv=2, head_dim=8, sliding_window=11, query_pre_attn_scalar=13,
                                    sliding_window_pattern=3, rope_parameters={
                                        "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0},
                                        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}})),
        Model(common(2, 36, 3, 44, 113, kv=1, head_dim=10, sliding_window=18, query_pre_attn_scalar=12,
                     sliding_window_pattern=2, rope_parameters={
                         "full_attention": {"rope_type": "default", "rope_theta": 2000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}), old=True),
        shows=[{"query_pre_attn_scalar": 8}, {"sliding_window": 12},
               {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}]),
    "bloom": Pair("bloom", Model(dict(n_layer=2, hidden_size=40, n_head=5, vocab_size=103, seq_length=128)),
                  Model(dict(n_layer=1, hidden_size=36, n_head=3, vocab_size=103, seq_length=128), old=True)),
    "mpt": Pair("mpt", Model(dict(n_layers=2, d_model=42, n_heads=7, vocab_size=103, max_seq_len=128, expansion_ratio=2)),
                Model(dict(n_layers=1, d_model=36, n_heads=3, vocab_size=103, max_seq_len=128, expansion_ratio=2,
                           attn_config={"attn_type": "multihead_attention", "softmax_scale": 0.4}), old=True)),
    "olmoe": Pair(
        "olmoe", Model(common(2, 42, 7, 20, 103, kv=7, num_experts=6, num_experts_per_tok=2)),
        Model(common(1, 40, 4, 24, 103, kv=2, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True), old=True),
        shows=[{"num_experts_per_tok": 3}, {"norm_topk_prob": True}], sizes=((0.35, 1), (0.5, 1))),
    "phi": Pair("phi", Model(common(2, 50, 5, 72, 103, **rope("default", partial_rotary_factor=0.4))),
                Model(common(1, 36, 3, 52, 103), old=True),
                shows=[rope("default", partial_rotary_factor=0.8)]),
    "phi3": Pair("phi3", Model(common(2, 44, 6, 52, 103, kv=2, head_dim=12)),
                 Model(common(1, 36, 3, 52, 103, sliding_window=21), old=True)),
    "gpt-oss": Pair(
        "gpt_oss", Model(common(3, 40, 6, 24, 103, kv=2, head_dim=12, num_local_experts=5, num_experts_per_tok=2,
                                sliding_window=17, swiglu_limit=0.9, swiglu_alpha=1.3,
                                **rope("yarn", factor=4.0, original_max_position_embeddings=32, truncate=False))),
        Model(common(2, 36, 3, 20, 103, kv=3, head_dim=8, num_local_experts=3, num_experts_per_tok=2,
                     **rope("yarn", factor=2.0, original_max_position_embeddings=64, truncate=False)), old=True),
        shows=[{"num_experts_per_tok": 1}, {"swiglu_limit": 1.0}, {"swiglu_alpha": 1.4}, {"sliding_window": 18},
               {"layer_types": ["sliding_attention"] * 3}]),
    "phi3-longrope": Pair(
        "phi3", Model(common(2, 48, 6, 52, 103, kv=2, original_max_position_embeddings=104, **rope(
            "longrope", partial_rotary_factor=0.75, short_factor=[1.0, 1.1, 1.7], long_factor=[1.0, 2.0, 4.0]))),
        Model(common(1, 36, 3, 52, 103, original_max_position_embeddings=100, tie_word_embeddings=True, **rope(
            "longrope", short_factor=[1.0, 1.2, 1.3, 1.5, 2.0, 2.5], long_factor=[1, 2, 3, 4, 5, 6.5]))),
        shows=[rope("longrope", partial_rotary_factor=0.75, short_factor=[1.0, 1.1, 1.6], long_factor=[1.0, 2.0, 4.0],
                    original_max_position_embeddings=104),
               rope("longrope", partial_rotary_factor=0.75, short_factor=[1.0, 1.1, 1.7], long_factor=[1.0, 2.0, 4.0],
                    original_max_position_embeddings=104, attention_factor=1.0)]),
    "qwen3-next": Pair(
        "qwen3_next", Model(common(4, 40, 4, 36, 107, kv=2, head_dim=16, num_experts=6, num_experts_per_tok=3,
                                   moe_intermediate_size=20, shared_expert_intermediate_size=28, mlp_only_layers=[1],
                                   **DELTA_NET, linear_num_key_heads=4, linear_num_value_heads=8,
                                   layer_types=["linear_attention", "linear_attention", "full_attention",
                                                "linear_attention"],
                                   **rope("default", partial_rotary_factor=0.25))),
        Model(common(2, 36, 3, 40, 107, kv=3, head_dim=8, num_experts=4, num_experts_per_tok=2,
                     moe_intermediate_size=16, shared_expert_intermediate_size=20, norm_topk_prob=False,
                     **DELTA_NET, linear_num_key_heads=3, linear_num_value_heads=3, linear_conv_kernel_dim=3,
                     full_attention_interval=2, tie_word_embeddings=True,
                     **rope("default", partial_rotary_factor=0.5)), old=True, fused=True),
        shows=[{"num_experts_per_tok": 2}, {"norm_topk_prob": False}, rope("default", partial_rotary_factor=0.5)]),
    "qwen3-5": Pair(
        "qwen3_5_text", Model(common(4, 40, 4, 36, 107, kv=2, head_dim=16, **DELTA_NET, linear_num_key_heads=4,
                                     linear_num_value_heads=8,
                                     layer_types=["linear_attention", "full_attention", "linear_attention",
                                                  "linear_attention"],
                                     **rope("default", partial_rotary_factor=0.25, mrope_section=[1, 1, 0],
                                            mrope_interleaved=True)), nested=True),
        Model(common(2, 36, 3, 40, 107, kv=3, head_dim=8, **DELTA_NET, linear_num_key_heads=3,
                     linear_num_value_heads=3, linear_conv_kernel_dim=3, full_attention_interval=2,
                     tie_word_embeddings=True, **rope("default", partial_rotary_factor=0.5, mrope_section=[1, 1, 0]))),
        shows=[rope("default", partial_rotary_factor=0.5, mrope_section=[2, 1, 1])]),
    "qwen3-5-moe": Pair(
        "qwen3_5_moe_text", Model(common(3, 40, 4, None, 107, kv=2, head_dim=16, num_experts=6, num_experts_per_tok=3,
                                         moe_intermediate_size=20, shared_expert_intermediate_size=28, **DELTA_NET,
                                         linear_num_key_heads=4, linear_num_value_heads=4, full_attention_interval=3,
                                         **rope("default", partial_rotary_factor=0.5, mrope_section=[2, 1, 1]))),
        Model(common(2, 36, 3, None, 107, kv=3, head_dim=8, num_experts=4, num_experts_per_tok=2,
                     moe_intermediate_size=16, shared_expert_intermediate_size=20, **DELTA_NET,
                     linear_num_key_heads=3, linear_num_value_heads=6, full_attention_interval=2,
                     tie_word_embeddings=True, **rope("default", partial_rotary_factor=0.5, mrope_section=[1, 1, 0])),
              fused=True, nested=True),
        shows=[{"num_experts_per_tok": 2}]),
}


# ---- models ----

def make_config(family, model):
    shapes = {name: value for name, value in model.shapes.items() if value is not None or name == "q_lora_rank"}
    shapes = json.loads(json.dumps(shapes))  # transformers completes rope_parameters in place
    return AutoConfig.for_model(family, bos_token_id=0, eos_token_id=0, pad_token_id=0, **shapes)


def build(config, dtype=torch.float32):
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=dtype).eval()
    return in_float64(model)


def in_float64(model):
    """Experts one after another: what multiplies them together has no float64."""
    if getattr(model.config, "num_experts_per_tok", None):
        model.set_experts_implementation("eager")
    return model


def corrections(model):
    """Biases of a router's scores, which are no parameters, and which files hold as if they were."""
    return [(name, weight) for name, weight in model.named_buffers() if name.endswith("e_score_correction_bias")]


def norms_around_0(family, name):
    """Whether a norm's weights are stored less 1."""
    return family.startswith("gemma") or (
        family.startswith(("qwen3_next", "qwen3_5")) and "linear_attn.norm" not in name)


def spread(deviation, around=0.0):
    """How a recipe makes numbers that deviate so far."""
    return "uniform", f"{math.sqrt(3) * deviation:.4g}", around


def how_to_make(name, shape, config, key, tied, sizes):
    """Every tensor random, none at the value where it would have no effect. A head has the embeddings' rows, so that the token before the last one
    by number is likely to follow; where the pair's target or draft has but one matrix of both, each token itself, which the last norm's signs prevent."""
    family, small = config.model_type, 1 / math.sqrt(config.hidden_size)
    stem, _, which = name.rpartition(".")
    if name.endswith(FOUND) or name.endswith(HEADS) and config.tie_word_embeddings:
        return *spread(sizes[0]), key + "/embeddings"
    if name.endswith(HEADS):
        return *spread(small), key + "/embeddings", 0 if tied else 1
    if name.endswith(("project_in.weight", "project_out.weight")):
        return *spread(2 * small), key + "/" + stem.split(".")[-1]
    if len(shape) >= 2:
        return spread(small * (sizes[1] if stem.endswith(OUTPUTS) or name.endswith(OUTPUTS) else 1))
    if name.endswith("e_score_correction_bias"):
        return "uniform", 0.3, 0
    stream = [f"{key}/last norm/{which}".replace(" ", "-")] if stem.endswith(LAST_NORMS) else []
    if name.endswith("bias"):
        return *spread(0.3), *stream
    middle = 1.0 if not norms_around_0(family, name) else 0.0
    return "uniform", *((1.5, middle - 1) if stream and tied else (0.45, middle + 0.05)), *stream


def recipe_of(weights, config, key, which, tied, sizes):
    """Of a file with tensors of these names, types and shapes."""
    recipe = Recipe("safetensors", f"{key}/{which}")
    for name, weight in sorted(weights.items()):
        dtype, shape = TYPES[weight.dtype], list(weight.shape)
        if name.endswith(TABLES) and weight.numel() < 65:
            recipe.add_bytes(name, dtype, shape, weight.numpy().tobytes())
        else:
            recipe.add(name, dtype, shape, *how_to_make(name, shape, config, key, tied, sizes))
    return recipe


# ---- files ----

def old_config(config):
    """Only what differs from transformers' defaults, under the names of transformers 4."""
    family, usual = config.model_type, type(config)().to_dict()
    needed = ("model_type", "architectures", "dtype", "rope_parameters", "pad_token_id")
    fields = {name: value for name, value in config.to_dict().items() if name in needed or value != usual.get(name)}
    fields["torch_dtype"] = fields.pop("dtype")
    turning = dict(fields.pop("rope_parameters", None) or {})
    if family == "gemma3_text":
        turning, local = dict(turning["full_attention"]), turning["sliding_attention"]
        fields["rope_local_base_freq"] = local["rope_theta"]
        fields["sliding_window_pattern"] = config._sliding_window_pattern
    if family == "qwen3_next":
        fields["full_attention_interval"] = 1 + config.layer_types.index("full_attention")
    if family == "cohere2":
        fields["sliding_window_pattern"] = 1 + config.layer_types.index("full_attention")
    theta, share = turning.pop("rope_theta", None), turning.pop("partial_rotary_factor", None)
    kind = turning.pop("rope_type", "default")
    if family == "gpt_neox":
        if share not in (None, 0.25):
            fields["rotary_pct"] = share
        if theta not in (None, 10000.0):
            fields["rotary_emb_base"] = theta
    elif family in ("phi", "glm4", "glm4_moe", "stablelm", "qwen3_next"):
        fields["rope_theta"] = theta
        if share != (0.25 if family in ("stablelm", "qwen3_next") else 0.5):
            fields["partial_rotary_factor"] = share
    elif family not in ("gpt2", "opt", "falcon", "bloom", "mpt"):
        fields["rope_theta"] = theta
    if kind != "default":  # "type" came first, llama3 and yarn with "rope_type"
        fields["rope_scaling"] = {"type" if kind in ("linear", "dynamic") else "rope_type": kind, **turning}
    elif family == "llama":
        fields["rope_scaling"] = None
    fields.pop("layer_types", None)
    if family == "gemma":
        fields["hidden_act"] = "gelu"  # what the first files said and nobody meant
    fields["transformers_version"] = "4.31.0"
    return fields


def old_weights(weights, config, heads_dim):
    """With the prefixes and the buffers that old files have."""
    family, n_layers, n = config.model_type, config.num_hidden_layers, 8
    triangle = torch.ones(n, n, dtype=torch.uint8).tril().view(1, 1, n, n)
    low = torch.tensor(-1e4 if family == "gpt2" else -1e9)
    frequencies = 1.0 / 10000.0 ** (torch.arange(0, heads_dim, 2).float() / heads_dim)
    if family == "gpt2":
        weights = {name.removeprefix("transformer."): weight for name, weight in weights.items()}
        for i in range(n_layers):
            weights[f"h.{i}.attn.bias"], weights[f"h.{i}.attn.masked_bias"] = triangle, low
    elif family == "opt":
        weights = {name.removeprefix("model."): weight for name, weight in weights.items()}
        weights["lm_head.weight"] = weights["decoder.embed_tokens.weight"]
    elif family == "gpt_neox":
        for i in range(n_layers):
            layer = f"gpt_neox.layers.{i}.attention."
            weights[layer + "bias"], weights[layer + "masked_bias"] = triangle, low
            weights[layer + "rotary_emb.inv_freq"] = frequencies
    elif family in ("llama", "mistral"):
        for i in range(n_layers):
            weights[f"model.layers.{i}.self_attn.rotary_emb.inv_freq"] = frequencies
    elif family == "falcon":
        weights["lm_head.weight"] = weights["transformer.word_embeddings.weight"]
    return {name: weight.clone() for name, weight in weights.items()}


def nested_config(fields):
    whole = fields["model_type"].removesuffix("_text")
    names = [name.replace("ForCausalLM", "ForConditionalGeneration") for name in fields.pop("architectures")]
    return {"architectures": names, "dtype": fields.pop("dtype"), "model_type": whole, "text_config": fields,
            "vision_config": AutoConfig.for_model(whole).vision_config.to_dict()}


def nested_weights(weights):
    """Beside a part of what reads images."""
    weights = {"model.language_model." + name.removeprefix("model.") if name.startswith("model.") else name: weight
               for name, weight in weights.items()}
    return weights | {"model.visual.pos_embed.weight": torch.ones(2, 3)}


def file_of(model, how):
    """Fields of config.json, and what tensors the other file has."""
    config = model.config
    config.architectures = [type(model).__name__]
    with tempfile.TemporaryDirectory() as scratch:
        model.to(how.dtype).save_pretrained(scratch)  # under the names that files have, which are not always the modules'
        weights = load_file(pathlib.Path(scratch) / "model.safetensors")
    if how.fused:
        modules = model.state_dict()
        weights = {name: weight for name, weight in weights.items() if name in modules}
        weights |= {name: weight for name, weight in modules.items() if ".experts." in name}
    fields = config.to_dict()
    fields["dtype"] = config.dtype = str(how.dtype).removeprefix("torch.")
    if how.old:
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        fields, weights = old_config(config), old_weights(weights, config, head_dim)
    if how.nested:
        fields, weights = nested_config(fields), nested_weights(weights)
    return fields, weights


def write_tokenizer(size, file):
    """Byte-level BPE over ASCII, as far as `size` reaches: an end of text, printable characters, some merges."""
    words = ["<|endoftext|>", "Ġ"] + [chr(byte) for byte in range(33, 127)] + ["Ċ"]
    merges = ["Ġ t", "h e", "i n", "e r", "Ġ a", "r e", "o n", "Ġt he", "a n", "o r", "e s", "Ġ s", "e n", "i s",
              "Ġ w", "a t"][:size - len(words)]
    words = (words + [merge.replace(" ", "") for merge in merges])[:size]
    assert len(words) == size
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"id": 0, "content": words[0], "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False, "special": True}
    bpe = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
           "vocab": {word: i for i, word in enumerate(words)}, "merges": merges}
    file.write_text(json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [special],
                                "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
                                "decoder": byte_level, "model": bpe}, ensure_ascii=False) + "\n")


# ---- what they compute ----

@torch.no_grad()
def forward(model, tokens):
    """Logits [len(tokens), vocab]. Dynamic rotary frequencies grow with the text: there a row counts as the last one
    of a text, as it is when tokens are decoded one by one, and not as one that already sees the text's end."""
    if (getattr(model.config, "rope_parameters", None) or {}).get("rope_type") != "dynamic":
        return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    cache, rows = None, []
    for token in tokens:
        result = model(input_ids=torch.tensor([[token]]), past_key_values=cache, use_cache=True)
        cache = result.past_key_values
        rows.append(result.logits[0, -1])
    return torch.stack(rows)


def distance(a, b):
    """The largest over rows of max|a - b| / max|b|."""
    return ((a - b).abs().amax(-1) / b.abs().amax(-1)).max().item()


def expectation(model, model32, words, length, seed):
    """A text and what follows it in known words, or None where two logits lie so close that rounding may choose."""
    tokens = torch.randint(1, words, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    said, margins = list(tokens), []
    for _ in range(GREEDY_TOKENS):
        row = forward(model, said)[-1]
        best = row[:words].topk(2)
        margins.append(((best.values[0] - best.values[1]) / row.abs().max()).item())
        if margins[-1] < SMALLEST_MARGIN:
            return None
        said.append(best.indices[0].item())
    logits = forward(model, tokens)
    apart = distance(forward(model32, tokens).double(), logits)
    if hasattr(model.config, "num_experts_per_tok") and apart >= FLOAT32_BOUND:
        return None  # rounding chooses experts
    assert apart < FLOAT32_BOUND, f"float32 and float64 lie {apart:.1e} apart"
    return {"tokens": tokens, "greedy": said[length:], "margins": [round(margin, 5) for margin in margins]}, logits


def attention_of(directory):
    """transformers' eager Falcon adds ALiBi twice, in the mask and to the scores; its other path does not."""
    return "sdpa" if json.loads((directory / "config.json").read_text()).get("alibi") else "eager"


def expectations(directory, name, words, seed, lengths, stride, of=None):
    """Of the model `of`, else of the one of that name."""
    checkpoint = directory / (of or name)

    model, model32 = load(checkpoint, torch.float64), load(checkpoint, torch.float32)
    texts, kept = [], []
    for i, length in enumerate(lengths):
        for attempt in range(100):
            found = expectation(model, model32, words, length, 7919 * seed + 100 * i + attempt)
            if found is not None:
                break
        assert found is not None, "no text without near ties"
        text, logits = found
        text["positions"] = sorted({*range(0, length, stride), length - 1})
        texts.append(text)
        kept.append(logits[text["positions"]].float())
    with open(directory / f"{name}.logits", "wb") as file:
        file.write(torch.cat(kept).numpy().astype("<f4").tobytes())
    stored = [*model.parameters(), *(weight for _, weight in corrections(model))]
    return {"parameters": sum(weight.numel() for weight in stored), "texts": texts}, model


@torch.no_grad()
def check_effects(pair, model, text):
    """A tensor or a setting that could be left out unnoticed would make the tests blind."""
    whole = forward(model, text["tokens"])
    smallest = math.inf
    for name, weight in [*model.named_parameters(), *corrections(model)]:
        before = weight.clone()
        is_norm_weight = weight.dim() == 1 and name.endswith("weight")
        weight.fill_(1.0 if is_norm_weight and not norms_around_0(pair.family, name) else 0.0)
        effect = distance(forward(model, text["tokens"]), whole)
        weight.copy_(before)
        # Without rotation a key's bias adds the same to all scores of a row, which softmax takes away again.
        if pair.family == "opt" and name.endswith("k_proj.bias"):
            continue
        smallest = min(smallest, effect)
        assert effect > SMALLEST_EFFECT, f"{name} could be left out: {effect:.1e}"
    for change in pair.shows:
        changed = type(model.config).from_dict({**model.config.to_dict(), **json.loads(json.dumps(change))})
        other = build(changed, torch.float64)
        other.load_state_dict(model.state_dict())
        effect = distance(forward(other, text["tokens"]), whole)
        smallest = min(smallest, effect)
        assert effect > SMALLEST_CHANGE, f"{change} could be overlooked: {effect:.1e}"
    return smallest


def write_expected(expected, directory):
    lines = json.dumps(expected, indent=1)
    lines = re.sub(r"\[([^][{}]*)\]", lambda found: "[" + " ".join(found[1].split()) + "]", lines)  # a list a line
    (directory / "expected.json").write_text(lines + "\n")


def agreement(target, draft, known, texts):
    """Of greedy tokens, and how often padding comes out on top."""
    agreed, loud = [], 0
    for text in texts:
        whole = text["tokens"] + text["greedy"]
        guesses, said = (forward(model, whole)[len(text["tokens"]) - 1:-1] for model in (draft, target))
        loud += (said.argmax(-1) >= known).sum().item()
        guesses = guesses[:, :known].argmax(-1)
        agreed += [guess == token for guess, token in zip(guesses.tolist(), text["greedy"])]
    return sum(agreed) / len(agreed), loud


def load(checkpoint, dtype):
    model, info = AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=dtype, attn_implementation=attention_of(checkpoint), output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"], info
    return in_float64(model.eval())


@torch.no_grad()
def likely_agreement(directory, known):
    """Of the tokens that both think best behind random ones."""
    tokens = torch.randint(1, known, (60,), generator=torch.Generator().manual_seed(1)).tolist()
    best = [load(directory / which, torch.float32)(input_ids=torch.tensor([tokens])).logits[0, :, :known].argmax(-1)
            for which in ("target", "draft")]
    return (best[0] == best[1]).double().mean().item()


def make_pair(name, pair, configs, files, seed, attempt, directory):
    known = pair.known or configs["target"].vocab_size
    tied = any(config.tie_word_embeddings for config in configs.values())
    shutil.rmtree(directory, ignore_errors=True)
    for which, (fields, weights) in files.items():
        (directory / which).mkdir(parents=True)
        (directory / which / "config.json").write_text(json.dumps(fields, indent=1, sort_keys=True) + "\n")
        recipe = recipe_of(weights, configs[which], f"{name}-{seed}-{attempt}", which, tied,
                           pair.sizes[attempt % len(pair.sizes)])
        recipe.write(directory / which / "model.safetensors")
    likely = likely_agreement(directory, known)
    assert AGREEMENT[0] <= likely <= AGREEMENT[1], f"agreement about {likely:.2f}"
    write_tokenizer(known, directory / "target" / "tokenizer.json")
    expected = {"tokenizer_size": known}
    expected["target"], target = expectations(directory, "target", known, seed, TEXT_LENGTHS, 6)
    expected["draft"], draft = expectations(directory, "draft", known, seed, TEXT_LENGTHS[:1], 10)
    agreed, loud = agreement(target, draft, known, expected["target"]["texts"])
    assert AGREEMENT[0] <= agreed <= AGREEMENT[1], f"agreement {agreed:.2f}"
    assert len({token for text in expected["target"]["texts"] for token in text["greedy"]}) >= 6, "texts that repeat a token"
    assert loud > 0 or configs["target"].vocab_size == known, "padding never wins: nobody would see it unmasked"
    if name == "phi3-longrope":  # beyond the original positions, where transformers has the long factors throughout
        expected["long"], _ = expectations(directory, "long", known, seed, (109,), 12, of="target")
    write_expected(expected, directory)
    effect = min(check_effects(pair, target, expected["target"]["texts"][0]),
                 check_effects(dataclasses.replace(pair, shows=[]), draft, expected["draft"]["texts"][0]))
    print(f"{name}: attempt {attempt}, agreement {agreed:.2f}, smallest effect {effect:.1e}, "
          f"{expected['target']['parameters']} + {expected['draft']['parameters']} parameters", flush=True)


def search(name, pair, seed, directory, first):
    hows = {"target": pair.target, "draft": pair.draft}
    configs = {which: make_config(pair.family, how) for which, how in hows.items()}
    files = {which: file_of(build(configs[which]), how) for which, how in hows.items()}
    for attempt in range(first, first + ATTEMPTS):
        try:
            make_pair(name, pair, configs, files, seed, attempt, directory)
            return None
        except AssertionError as why:
            print(f"{name}: attempt {attempt}: {why}", flush=True)
    return f"{name}: no weights found"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--first", type=int, default=0, metavar="ATTEMPT", help="where a search begins")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    failed = []
    for seed in range(arguments.seeds):
        root = HERE / ("families" if seed == 0 else f"families-seed-{seed}")
        root.mkdir(exist_ok=True)
        if seed > 0:
            (root / ".gitignore").write_text("*\n")
        for number, (name, pair) in enumerate(PAIRS.items()):
            if not arguments.only or name in arguments.only:
                failed.append(search(name, pair, 100 * seed + number, root / name, arguments.first))
    raise SystemExit("\n".join(filter(None, failed)) or None)


if __name__ == "__main__":
    main()
