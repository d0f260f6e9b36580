"""Writes a checkpoint of random weights in the shape of a public one, to measure loading and passes on.

    python3 bench/random_checkpoint.py OUT --shape llama-3-8b [--layers 22] [--dtype bfloat16] [--tokenizer DIR]

Shapes are the files of tests/launch/public_shapes (opt-125m, opt-2.7b, opt-6.7b, llama-3-8b, ...), and `llama-1b`: hidden
2048, 32 heads over 4 key heads, MLP 5632, vocabulary 32000, 22 layers. Matrices are normal with deviation 0.02, taken
from one block of a prime count of numbers again and again, so that no two rows are alike; norms are 1, biases 0. The tokenizer is
copied from another checkpoint and may know fewer tokens. Standard library only. Writes as fast as the disk does.
"""

import argparse
import json
import math
import pathlib
import random
import shutil
import struct
import sys

ROOT = pathlib.Path(__file__).parent.parent
SHAPES = ROOT / "tests/launch/public_shapes"
DTYPES = {"bfloat16": ("BF16", 2), "float16": ("F16", 2), "float32": ("F32", 4)}
BLOCK = 1000003  # numbers


def llama_1b():
    hidden, inner, keys, vocab = 2048, 5632, 256, 32000
    layer = "model.layers.{i}."
    tensors = [["model.embed_tokens.weight", [vocab, hidden]], ["lm_head.weight", [vocab, hidden]],
               ["model.norm.weight", [hidden]], [layer + "input_layernorm.weight", [hidden]],
               [layer + "post_attention_layernorm.weight", [hidden]]]
    for name, shape in {"self_attn.q_proj": [hidden, hidden], "self_attn.k_proj": [keys, hidden],
                        "self_attn.v_proj": [keys, hidden], "self_attn.o_proj": [hidden, hidden],
                        "mlp.gate_proj": [inner, hidden], "mlp.up_proj": [inner, hidden],
                        "mlp.down_proj": [hidden, inner]}.items():
        tensors.append([layer + name + ".weight", shape])
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocab, "hidden_size": hidden,
              "intermediate_size": inner, "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4,
              "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "hidden_act": "silu",
              "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 0}
    return {"config": config, "layers": 22, "tensors": tensors}


def load_shape(name):
    if name == "llama-1b":
        return llama_1b()
    file = SHAPES / f"{name}.json"
    if not file.exists():
        known = ["llama-1b"] + sorted(path.stem for path in SHAPES.glob("*.json"))
        sys.exit(f"--shape {name}: not one of {', '.join(known)}")
    return json.loads(file.read_text())


def encoded(values, dtype):
    if dtype == "bfloat16":  # the upper halves of float32, little end first
        whole = struct.pack(f"<{len(values)}f", *values)
        upper = bytearray(len(whole) // 2)
        upper[0::2], upper[1::2] = whole[2::4], whole[3::4]
        return bytes(upper)
    return struct.pack(f"<{len(values)}{'e' if dtype == 'float16' else 'f'}", *values)


def tensors_of(shape, layers):
    for name, size in shape["tensors"]:
        for i in range(layers if "{i}" in name else 1):
            yield name.replace("{i}", str(i)), size


def write_weights(path, tensors, dtype):
    code, width = DTYPES[dtype]
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, size in tensors:
        begin, end = end, end + math.prod(size) * width
        header[name] = {"dtype": code, "shape": size, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = random.Random(1)
    normal = encoded([generator.gauss(0, 0.02) for _ in range(BLOCK)], dtype)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, size in tensors:
            left = math.prod(size) * width
            if len(size) == 1:
                file.write(encoded([0.0 if name.endswith("bias") else 1.0], dtype) * (left // width))
            while len(size) > 1 and left > 0:
                left -= file.write(normal[:left])
    return end // width


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--shape", default="llama-1b")
    parser.add_argument("--layers", type=int, help="fewer or more than the shape has")
    parser.add_argument("--dtype", default="bfloat16", choices=sorted(DTYPES))
    parser.add_argument("--tokenizer", type=pathlib.Path, default=ROOT / "model/demo/target")
    options = parser.parse_args()
    shape = load_shape(options.shape)
    config = shape["config"]
    layers = options.layers or shape["layers"]
    for field in ("num_hidden_layers", "n_layer"):
        if field in config:
            config[field] = layers
    config["torch_dtype"] = options.dtype

    options.out.mkdir(parents=True, exist_ok=True)
    count = write_weights(options.out / "model.safetensors", list(tensors_of(shape, layers)), options.dtype)
    (options.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    shutil.copy(options.tokenizer / "tokenizer.json", options.out)
    print(count, "parameters in", options.out)


if __name__ == "__main__":
    main()
