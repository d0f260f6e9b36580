#!/usr/bin/env python3
"""Writes a Llama checkpoint in Hugging Face's layout as a GGUF file: llama.cpp decodes with the same weights.

    python3 bench/peers/gguf_file.py CHECKPOINT OUT.gguf [--dtype float32|float16|bfloat16|int8|int4]

Matrices take --dtype (int8 and int4: Q8_0 and Q4_0, a scale for every 32 weights), norms stay float32, as llama.cpp
asks. What cannot be written as it is (another family, scaled positions, biases, a tokenizer that is not GPT-2's
byte-level BPE) is refused. Exits with 77 where gguf or numpy is missing.
"""

import argparse
import json
import os
import pathlib
import sys

# In this folder, transformers.py is no library: whoever imports that must not find ours first.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path = [place for place in sys.path if os.path.abspath(place) != HERE] + [HERE]

try:
    import gguf
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}; see bench/peers/requirements.txt")
    sys.exit(77)

DTYPES = {"float32": gguf.GGMLQuantizationType.F32, "float16": gguf.GGMLQuantizationType.F16,
          "bfloat16": gguf.GGMLQuantizationType.BF16, "int8": gguf.GGMLQuantizationType.Q8_0,
          "int4": gguf.GGMLQuantizationType.Q4_0}
FILE_TYPES = {"float32": gguf.LlamaFileType.ALL_F32, "float16": gguf.LlamaFileType.MOSTLY_F16,
              "bfloat16": gguf.LlamaFileType.MOSTLY_BF16, "int8": gguf.LlamaFileType.MOSTLY_Q8_0,
              "int4": gguf.LlamaFileType.MOSTLY_Q4_0}
BLOCK_TENSORS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
OUTER_TENSORS = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
                 "lm_head.weight": "output.weight"}
PLAIN_VALUES = {"model_type": "llama", "hidden_act": "silu", "attention_bias": False, "mlp_bias": False}


class Refused(Exception):
    """What this file cannot write, in one line."""


def interleaved_rows(heads, head_size):
    """Old row for each new row of a query or key matrix.

    Hugging Face rotates feature i of a head together with feature i + head_size / 2; llama.cpp's llama rotates 2i
    together with 2i + 1. Queries and keys are reordered alike, so that their products stay what they were.
    """
    half = head_size // 2
    within = [feature // 2 + feature % 2 * half for feature in range(head_size)]
    return [head * head_size + row for head in range(heads) for row in within]


def read_config(directory):
    config = json.loads((directory / "config.json").read_text())
    for key, value in PLAIN_VALUES.items():
        if config.get(key, value) != value:
            raise Refused(f"{directory}/config.json: {key} is {config[key]!r}, only {value!r} can be written")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise Refused(f"{directory}/config.json: scaled rotary positions cannot be written")
    config["rope_theta"] = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    config["head_dim"] = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    config["num_key_value_heads"] = config.get("num_key_value_heads") or config["num_attention_heads"]
    return config


def read_tensors(directory):
    """(name, values in float32) of every tensor of the safetensors files."""
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise Refused(f"{directory}: no safetensors file")
    for file in files:
        data = np.memmap(file, dtype=np.uint8, mode="r")
        begin = 8 + int.from_bytes(data[:8].tobytes(), "little")
        for name, entry in json.loads(data[8:begin].tobytes()).items():
            if name == "__metadata__":
                continue
            raw = data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]]
            if entry["dtype"] == "BF16":
                values = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
            elif entry["dtype"] in ("F16", "F32"):
                values = raw.view(np.float16 if entry["dtype"] == "F16" else np.float32).astype(np.float32)
            else:
                raise Refused(f"{file}: {name} is {entry['dtype']}, only F32, F16 and BF16 can be written")
            yield name, values.reshape(entry["shape"])


def gguf_name(name):
    """Name in the file; None for what llama.cpp computes itself."""
    if name in OUTER_TENSORS:
        return OUTER_TENSORS[name]
    if name.endswith("rotary_emb.inv_freq"):
        return None
    parts = name.split(".")
    part = ".".join(parts[3:-1])
    if parts[:2] != ["model", "layers"] or parts[-1] != "weight" or part not in BLOCK_TENSORS:
        raise Refused(f"tensor {name} has no place in llama.cpp's llama")
    return f"blk.{parts[2]}.{BLOCK_TENSORS[part]}.weight"


def add_sizes(writer, config):
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def add_tokenizer(writer, directory, config):
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    model, before = tokenizer["model"], tokenizer.get("pre_tokenizer") or {}
    plain = (model["type"] == "BPE" and not model.get("byte_fallback") and not tokenizer.get("normalizer")
             and before.get("type") == "ByteLevel" and before.get("use_regex") and not before.get("add_prefix_space"))
    if not plain:
        raise Refused(f"{directory}/tokenizer.json: not GPT-2's byte-level BPE, the only one that can be written")
    tokens = [f"[unused {token}]" for token in range(config["vocab_size"])]
    types = [gguf.TokenType.UNUSED] * len(tokens)
    for text, token in model["vocab"].items():
        tokens[token], types[token] = text, gguf.TokenType.NORMAL
    for added in tokenizer.get("added_tokens", []):
        tokens[added["id"]] = added["content"]
        types[added["id"]] = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]])
    for key, add in (("bos_token_id", writer.add_bos_token_id), ("eos_token_id", writer.add_eos_token_id)):
        if isinstance(config.get(key), int):
            add(config[key])
    writer.add_add_bos_token(False)


def add_tensors(writer, directory, config, dtype):
    rows = {"attn_q": interleaved_rows(config["num_attention_heads"], config["head_dim"]),
            "attn_k": interleaved_rows(config["num_key_value_heads"], config["head_dim"])}
    for name, values in read_tensors(directory):
        written = gguf_name(name)
        if written is None or (written == "output.weight" and config.get("tie_word_embeddings")):
            continue
        part = written.split(".")[-2]
        if part in rows:
            values = values[rows[part]]
        kind = DTYPES[dtype] if values.ndim > 1 else DTYPES["float32"]
        writer.add_tensor(written, gguf.quants.quantize(np.ascontiguousarray(values), kind), raw_dtype=kind)


def write(directory, file, dtype):
    """Throws Refused, or OSError where a file cannot be read or written."""
    try:
        write_parts(pathlib.Path(directory), file, dtype)
    except (KeyError, ValueError, IndexError, TypeError, AttributeError) as error:  # of a file that is not what it says
        raise Refused(f"{directory}: no checkpoint that can be written: {error!r}") from error


def write_parts(directory, file, dtype):
    config = read_config(directory)
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_file_type(FILE_TYPES[dtype])
    add_sizes(writer, config)
    add_tokenizer(writer, directory, config)
    add_tensors(writer, directory, config, dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--dtype", choices=DTYPES, default="float16")
    options = parser.parse_args()
    try:
        write(options.checkpoint, options.out, options.dtype)
    except (Refused, OSError) as error:
        sys.exit(f"gguf_file: {error}")
    print(f"{options.out}: {options.out.stat().st_size} bytes, {options.dtype}")


if __name__ == "__main__":
    main()
