"""Compares greedy text of a GGUF file with transformers in float32 on the file's weights, dequantised by PyPI's gguf.

    python tests/real/compare_with_transformers.py MODEL.gguf [--entrodraft build/entrodraft] [--prompts 20] [--write FILE]
                                                                                  (torch, transformers, gguf)

Prompts are those of HumanEval, as raw text. Token ids must be the same up to the first place where the two best logits
are closer than 1e-4 of the row's largest: there the order of float32 sums may decide. Takes the memory of the model in
float32 twice. Exit code 1 where a text differs. FILE: the texts as far as they were compared, for smollm2_test.py.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import gguf
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLOSE = 1e-4
TURNED = ("llama", "granite", "smollm3")  # architectures whose pairs of rotated numbers are neighbours in files alone
SHIFTED = ("gemma", "gemma2", "gemma3")  # whose norms are whole in files alone


def turned_back(weight, heads):
    shape = (heads, weight.shape[0] // heads // 2, 2)
    return weight.reshape(*shape, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def load(path):
    """The model with the file's weights, whatever transformers' own reader of GGUF does."""
    file = gguf.GGUFReader(path)
    architecture = file.fields["general.architecture"].contents()
    config = transformers.AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    number = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == architecture)
    names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    tensors = {tensor.name: tensor for tensor in file.tensors}
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for key, value in model.named_parameters():
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        tensor = tensors.pop(name)
        weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(value.shape)
        stem = name.split(".")[-2]
        if architecture in TURNED and stem in heads:
            weight = turned_back(weight, heads[stem])
        if architecture in SHIFTED and stem.endswith("norm"):
            weight = weight - 1
        value.data = torch.from_numpy(weight.copy())
    if tensors.keys() - {"rope_freqs.weight"}:
        raise SystemExit(f"{path}: tensors that transformers' model has no place for: {sorted(tensors)}")
    return model.eval()


def run(command, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    out = subprocess.run(command, input=text, capture_output=True, text=True)
    if out.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {out.returncode}\n{out.stderr}")
    return [json.loads(line) for line in out.stdout.splitlines()]


def first_difference(model, prompt, tokens):
    """Of a text that follows on a prompt: where it differs (None: nowhere), and how far it was compared."""
    text, cache = torch.tensor([prompt]), None
    for place, token in enumerate(tokens):
        with torch.no_grad():
            out = model(text, past_key_values=cache, use_cache=True)
        cache, row = out.past_key_values, out.logits[0, -1]
        best = row.topk(2)
        if float(best.values[0] - best.values[1]) < CLOSE * float(row.abs().max()):
            return None, place
        if int(best.indices[0]) != token:
            return (place, int(best.indices[0]), token), place
        text = torch.tensor([[token]])
    return None, len(tokens)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--entrodraft", default=str(ROOT / "build/entrodraft"))
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--max-new-tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    with open(ROOT / "bench/tasks/data/human_eval.jsonl", encoding="utf-8") as questions:
        texts = [json.loads(line)["prompt"] for line in questions][:options.prompts]
    path = str(options.model)
    prompts = [line["token_ids"] for line in run(
        [options.entrodraft, "tokenize", "--model", path, "--add-special-tokens", "--input", "-"],
        [{"id": i, "text": text} for i, text in enumerate(texts)])]
    answers = run([options.entrodraft, "generate", "--target", path, "--activation-dtype", "int24", "--drafter", "ngram", "--quiet", "--input", "-",
                   "--threads", str(options.threads), "--max-context", "1024", "--max-new-tokens",
                   str(options.max_new_tokens)],
                  [{"id": i, "prompt_token_ids": prompt, "ignore_eos": True} for i, prompt in enumerate(prompts)])
    model, differ, compared, goldens = load(options.model.resolve()), 0, 0, []
    for prompt, answer in zip(prompts, answers):
        difference, places = first_difference(model, prompt, answer["token_ids"])
        compared += places
        goldens.append({"prompt_token_ids": prompt, "token_ids": answer["token_ids"][:places]})
        if difference:
            differ += 1
            print("prompt {}: place {}: transformers says {}, entrodraft {}".format(answer["id"], *difference))
    if options.write and not differ:
        options.write.write_text("".join(json.dumps(golden, separators=(",", ":")) + "\n" for golden in goldens))
    print(f"{options.model.name}: {len(prompts) - differ} of {len(prompts)} texts equal, {compared} tokens compared")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
