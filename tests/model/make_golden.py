"""Writes the golden checkpoints in golden/: a tiny Llama target and draft, and what they must compute.

The figures in expected.json come from a float64 forward pass written out below, which is first checked against
transformers. Run by hand, from anywhere, when the goldens must change; the tests read its output only.

    python tests/model/make_golden.py        (torch, transformers, tokenizers, safetensors)

Training is not bit-reproducible across machines, so a new run gives new weights and new figures, which belong
together: commit all of golden/.
"""

import json
import math
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from recipes import Recipe

GOLDEN = pathlib.Path(__file__).parent / "golden"
VOCAB = 512
END_OF_TEXT = 0
NEW_TOKENS = 48
SMALLEST_MARGIN = 1e-3  # of a greedy step's two best logits: float32 must not part from float64

TEXT = """The ferry left the island at six in the morning, when the harbour was still grey and the gulls were asleep on
the roofs. Marta was at the rail with her brother and counted the lamps along the quay. There were eleven of them,
and one did not burn. "It has been dark since the winter," said her brother. "Nobody climbs up there any more."
The captain drank his tea and looked at the water. He had crossed the sound four thousand times, in fog and in snow,
and once with a piano on the deck. He knew the two rocks, the sandbank behind them and the bell that rang when the
tide was turning. He did not know the woman in the red coat, who had bought a ticket and then asked him where the
ferry went. "To the other side," he had said, and she had laughed.
At seven the wind came up from the west. The waves were short and steep, and the ferry rolled. Marta held on to the
rail and thought of the school on the other side, of the long room with the maps, and of the teacher who had said that
an island is only a mountain that is standing in the sea. Her brother thought of breakfast. The woman in the red coat
wrote something in a small book, tore out the page, and let it go. It flew over the water like a gull, and then it
was a gull, or a wave, or nothing at all.
When the ferry came to the other side, the captain rang the bell. One after another they went over the plank: the
farmers with their baskets, the postman with his bag, Marta and her brother. The woman in the red coat was the last.
"And when do you go back?" she asked. "At six in the evening," said the captain, "when the lamps are lit." She gave
him the small book. "Then you must read it before six," she said, "and climb up there, and light the eleventh."
"""

PROMPTS = [
    "The ferry left the island",
    "Marta held on to the rail and thought of",
    "At six in the evening, the woman in the red coat",
    "\"To the other side,\" he had said. 4 + 4 = 8; snow and fog!\n",
    "x",
    "The captain drank his tea and looked at the water. He had crossed the sound, and the wind came up from the west. ",
]


def make_tokenizer():
    """Byte-level BPE of 512 entries: the end of text, 256 bytes, 255 merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([TEXT], trainer)
    assert tokenizer.get_vocab_size() == VOCAB
    return tokenizer


def make_model(ids, seed, steps, **shapes):
    """Random weights wide enough for uneven logits, then a little training, so that the two models often agree."""
    torch.manual_seed(seed)
    config = LlamaConfig(vocab_size=VOCAB, max_position_embeddings=256, initializer_range=0.08, rms_norm_eps=1e-5,
                         bos_token_id=END_OF_TEXT, eos_token_id=END_OF_TEXT, dtype="float32",
                         attn_implementation="eager", **shapes)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.7, 1.3)  # a weight of one would hide that it is left out
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        starts = torch.randint(0, len(ids) - 65, (8,), generator=generator)
        batch = torch.stack([ids[start:start + 64] for start in starts])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval(), loss.item()


@torch.no_grad()
def forward(model, tokens):
    """Logits [len(tokens), vocab] in float64, from the formulas and not from transformers' modules."""
    config, weights = model.config, {name: weight.double() for name, weight in model.state_dict().items()}
    heads, kv_heads, dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    theta = config.rope_parameters["rope_theta"]

    def norm(x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps) * weight

    n = len(tokens)
    angles = torch.outer(torch.arange(n).double(), theta ** (-torch.arange(0, dim, 2).double() / dim))
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)

    def rotate(x):
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat([-high, low], -1) * sin

    x = weights["model.embed_tokens.weight"][torch.tensor(tokens)]
    future = torch.full((n, n), -math.inf, dtype=torch.float64).triu(1)
    for i in range(config.num_hidden_layers):
        layer = {name.split(f"layers.{i}.")[1][:-len(".weight")]: weight
                 for name, weight in weights.items() if f"layers.{i}." in name}
        y = norm(x, layer["input_layernorm"])
        q = rotate((y @ layer["self_attn.q_proj"].T).view(n, heads, dim).transpose(0, 1))
        k = rotate((y @ layer["self_attn.k_proj"].T).view(n, kv_heads, dim).transpose(0, 1))
        v = (y @ layer["self_attn.v_proj"].T).view(n, kv_heads, dim).transpose(0, 1)
        k, v = (each.repeat_interleave(heads // kv_heads, 0) for each in (k, v))
        attended = ((q @ k.transpose(1, 2)) / math.sqrt(dim) + future).softmax(-1) @ v
        x = x + attended.transpose(0, 1).reshape(n, heads * dim) @ layer["self_attn.o_proj"].T
        y = norm(x, layer["post_attention_layernorm"])
        gate = torch.nn.functional.silu(y @ layer["mlp.gate_proj"].T) * (y @ layer["mlp.up_proj"].T)
        x = x + gate @ layer["mlp.down_proj"].T
    head = "model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"
    return norm(x, weights["model.norm.weight"]) @ weights[head].T


@torch.no_grad()
def expectations(model, tokenizer):
    results = []
    for text in PROMPTS:
        prompt = tokenizer.encode(text).ids
        logits = forward(model, prompt)
        theirs = model(input_ids=torch.tensor([prompt])).logits[0].double()
        assert (logits - theirs).abs().max() <= 1e-5 * logits.abs().max(), "differs from transformers"
        positions = sorted({0, len(prompt) // 2, len(prompt) - 1})
        tokens, margins = list(prompt), []
        for _ in range(NEW_TOKENS):  # also past the end of text
            best = forward(model, tokens)[-1].topk(2)
            margins.append((best.values[0] - best.values[1]).item())
            tokens.append(best.indices[0].item())
        assert min(margins) >= SMALLEST_MARGIN, f"a near tie in {text!r}: choose another seed"
        results.append({
            "text": text,
            "prompt": prompt,
            "logits": [{"position": i, "first": logits[i, :8].tolist(), "argmax": logits[i].argmax().item(),
                        "logsumexp": logits[i].logsumexp(-1).item(), "max_abs": logits[i].abs().max().item()}
                       for i in positions],
            "greedy": tokens[len(prompt):],
            "smallest_margin": min(margins),
        })
    return results


def write_checkpoint(model, tokenizer, name):
    directory = GOLDEN / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    config = model.config.to_dict()
    # The old spelling for the draft, the new one for the target: both are in use.
    if config["tie_word_embeddings"]:
        config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
        config["rope_scaling"] = None
        config["torch_dtype"] = config.pop("dtype")
    config["architectures"] = ["LlamaForCausalLM"]
    (directory / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    tokenizer.save(str(directory / "tokenizer.json"))
    weights = {key: value.detach().clone().contiguous() for key, value in model.state_dict().items()
               if not (config["tie_word_embeddings"] and key == "lm_head.weight")}
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return weights


def write_sharded(weights, like, name):
    """The same weights over two files with an index: recipes, of which the build makes the files."""
    directory = GOLDEN / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for file in ("config.json", "tokenizer.json"):
        shutil.copyfile(GOLDEN / like / file, directory / file)
    names = sorted(weights)
    halves = [names[:len(names) // 2], names[len(names) // 2:]]
    weight_map = {}
    for i, half in enumerate(halves):
        file = f"model-{i + 1:05}-of-00002.safetensors"
        recipe = Recipe("safetensors", name, directory)
        for key in half:
            recipe.add(key, "F32", list(weights[key].shape), "of", f"../{like}/model.safetensors")
        recipe.write(directory / file)
        weight_map.update({key: file for key in half})
    total = sum(weight.numel() * weight.element_size() for weight in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def main():
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    ids = torch.tensor(tokenizer.encode(TEXT).ids)
    target, target_loss = make_model(
        ids, seed=11, steps=120, hidden_size=72, intermediate_size=112, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, head_dim=32, tie_word_embeddings=False)
    draft, draft_loss = make_model(
        ids, seed=12, steps=160, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, tie_word_embeddings=True)
    weights = write_checkpoint(target, tokenizer, "llama-target")
    write_checkpoint(draft, tokenizer, "llama-draft")
    write_sharded(weights, "llama-target", "llama-target-sharded")
    expected = {"llama-target": expectations(target, tokenizer), "llama-draft": expectations(draft, tokenizer)}
    (GOLDEN / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    for file in GOLDEN.rglob("*.safetensors"):
        file.chmod(0o644)

    agreement = []
    for case in expected["llama-target"]:
        tokens = case["prompt"] + case["greedy"]
        guesses = forward(draft, tokens)[len(case["prompt"]) - 1:-1].argmax(-1).tolist()
        agreement += [guess == token for guess, token in zip(guesses, case["greedy"])]
    print(f"losses {target_loss:.2f} {draft_loss:.2f}, greedy agreement {sum(agreement) / len(agreement):.2f}")
    for name, cases in expected.items():
        for case in cases:
            print(name, f"{case['smallest_margin']:.4f}", len(set(case["greedy"])),
                  repr(tokenizer.decode(case["greedy"])))


if __name__ == "__main__":
    main()
