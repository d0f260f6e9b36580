"""Writes a Llama checkpoint of about a billion random parameters, to measure loading and passes on.

    python3 bench/random_checkpoint.py OUT [--layers 22] [--dtype bfloat16] [--tokenizer model/demo/target]

Shapes are those of a 1.1-billion Llama (hidden 2048, 32 heads over 4 key heads, MLP 5632, vocabulary 32000). The
tokenizer is copied from another checkpoint and may know fewer tokens. Needs torch and safetensors.
"""

import argparse
import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file

HIDDEN, HEADS, KV_HEADS, INNER, VOCAB = 2048, 32, 4, 5632, 32000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--tokenizer", type=pathlib.Path,
                        default=pathlib.Path(__file__).parent.parent / "model/demo/target")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    generator = torch.Generator().manual_seed(1)

    def random(*shape):
        return torch.randn(*shape, generator=generator).mul_(0.02).to(dtype)

    tensors = {"model.embed_tokens.weight": random(VOCAB, HIDDEN), "lm_head.weight": random(VOCAB, HIDDEN),
               "model.norm.weight": torch.ones(HIDDEN, dtype=dtype)}
    key = HIDDEN // HEADS * KV_HEADS
    for i in range(options.layers):
        layer = f"model.layers.{i}."
        for name, shape in {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (key, HIDDEN),
                            "self_attn.v_proj": (key, HIDDEN), "self_attn.o_proj": (HIDDEN, HIDDEN),
                            "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN),
                            "mlp.down_proj": (HIDDEN, INNER)}.items():
            tensors[layer + name + ".weight"] = random(*shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[layer + name + ".weight"] = torch.ones(HIDDEN, dtype=dtype)

    options.out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, options.out / "model.safetensors", {"format": "pt"})
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": VOCAB, "hidden_size": HIDDEN,
              "intermediate_size": INNER, "num_hidden_layers": options.layers, "num_attention_heads": HEADS,
              "num_key_value_heads": KV_HEADS, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
              "hidden_act": "silu", "torch_dtype": options.dtype, "tie_word_embeddings": False,
              "bos_token_id": 0, "eos_token_id": 0}
    (options.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    shutil.copy(options.tokenizer / "tokenizer.json", options.out)
    print(sum(tensor.numel() for tensor in tensors.values()), "parameters in", options.out)


if __name__ == "__main__":
    main()
