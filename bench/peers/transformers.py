#!/usr/bin/env python3
"""How fast is entrodraft beside transformers' generate(), with the same text?

Both decode the same prompts greedily in float32 on the same threads, in one run. Time is the wall time of a
whole sequence (prefill and decoding: generate() here, stats.seconds there) per new token, EOS ignored on both
sides; loading is not counted, and both read one prompt before the clock starts. Prompts go in blocks, and in
each block every contender runs in turn, in an order that rotates, so that a noisy machine hits all alike.
Texts are compared before any figure is printed. A sequence may part from transformers' only where transformers'
own two best logits lie closer than 1e-4 of the row's largest; more than one in 64 ends the run with 1.

    python bench/peers/transformers.py --target model/demo/target --draft model/demo/draft \\
        --prompts model/demo/prompts.jsonl --binary build/entrodraft --threads 2 \\
        --rule "static --entropy-threshold 2.25" --rule moving-average

    python bench/peers/transformers.py --target model/demo/target --prompts model/demo/prompts.jsonl \\
        --golden tests/spec/demo_greedy.json

The second only writes transformers' greedy continuations, with the relative margin of every token.
Needs bench/peers/requirements.txt. --rule takes the value of --stop-rule and what goes with it.
"""

import os
import sys

# In this folder, transformers.py is this file and not the library.
sys.path = [place for place in sys.path if os.path.abspath(place) != os.path.dirname(os.path.abspath(__file__))]

import argparse  # noqa: E402
import json  # noqa: E402
import pathlib  # noqa: E402
import platform  # noqa: E402
import shlex  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402

import torch  # noqa: E402
import transformers  # noqa: E402

TIE = 1e-4  # of a row's largest logit: below it, float32 rounding may choose the other token


def load(directory):
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None  # both sides ignore EOS: equal lengths
    return model


def generate(model, prompt, n, **options):
    """(new tokens, seconds)"""
    ids = torch.tensor([prompt])
    began = time.perf_counter()
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=n,
                         pad_token_id=0, **options)
    seconds = time.perf_counter() - began
    return out[0, ids.shape[1]:].tolist(), seconds


def margins(model, prompt, tokens):
    """Best less second-best logit over the largest magnitude, at each new token, from one pass over the text."""
    logits = model(torch.tensor([prompt + tokens[:-1]])).logits[0, len(prompt) - 1:]
    best = logits.topk(2, dim=-1).values
    return ((best[:, 0] - best[:, 1]) / logits.abs().amax(-1)).tolist()


class Transformers:
    def __init__(self, name, target, **options):
        self.name, self.target, self.options = name, target, options

    def run(self, prompts, n):
        generate(self.target, prompts[0]["prompt_token_ids"], 8, **self.options)
        return {p["id"]: generate(self.target, p["prompt_token_ids"], n, **self.options) for p in prompts}


class Assisted(Transformers):
    """generate() with assistant_model; tokens is None for its own defaults, else a constant draft length."""

    def __init__(self, target, draft, tokens):
        super().__init__("transformers assisted" + ("" if tokens is None else f", {tokens} tokens"), target,
                         assistant_model=draft)
        self.draft, self.tokens = draft, tokens
        settings = draft.generation_config
        self.defaults = {key: getattr(settings, key) for key in (
            "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold")}

    def run(self, prompts, n):
        settings = dict(self.defaults)
        if self.tokens is not None:
            settings = {"num_assistant_tokens": self.tokens, "num_assistant_tokens_schedule": "constant",
                        "assistant_confidence_threshold": 0.0}
        for key, value in settings.items():
            setattr(self.draft.generation_config, key, value)
        return super().run(prompts, n)


class Entrodraft:
    def __init__(self, name, args, rule):
        self.name = name
        self.command = [args.binary, "generate", "--target", args.target, "--dtype", "float32", "--quiet",
                        "--threads", str(args.threads), "--max-new-tokens", str(args.new_tokens), "--ignore-eos"]
        if rule is not None:
            self.command += ["--draft", args.draft, "--stop-rule", *shlex.split(rule)]

    def run(self, prompts, n):
        with tempfile.TemporaryDirectory() as folder:
            source, result = pathlib.Path(folder, "in.jsonl"), pathlib.Path(folder, "out.jsonl")
            warm_up = {"id": "warm-up", "prompt_token_ids": prompts[0]["prompt_token_ids"], "max_new_tokens": 8}
            source.write_text("".join(json.dumps(line) + "\n" for line in [warm_up, *prompts]))
            run = subprocess.run([*self.command, "--input", source, "--output", result], capture_output=True, text=True)
            if run.returncode != 0:
                sys.exit(f"{shlex.join(map(str, run.args))}\nended with {run.returncode}: {run.stderr.strip()}")
            lines = [json.loads(line) for line in result.read_text().splitlines()]
        return {line["id"]: (line["token_ids"], line["stats"]["seconds"]) for line in lines if line["id"] != "warm-up"}


def compare_texts(name, target, prompts, reference, results):
    """Number of sequences that parted at a tie. Ends the run on any other difference."""
    ties = 0
    for prompt in prompts:
        want, got = reference[prompt["id"]][0], results[prompt["id"]][0]
        if want == got:
            continue
        at = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
        margin = margins(target, prompt["prompt_token_ids"], want)[at] if at < min(len(want), len(got)) else 1.0
        print(f"{name}: prompt {prompt['id']} differs from transformers at new token {at}, relative margin {margin:.1e}")
        if margin >= TIE:
            sys.exit("that is no tie: the texts are not equal, so no figures")
        ties += 1
    if ties * 64 > len(prompts):
        sys.exit(f"{name}: {ties} of {len(prompts)} sequences part at ties, more than 1 in 64")
    return ties


def environment(args):
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
               platform.processor())
    return {"cpu": cpu, "cores": os.cpu_count(), "threads": args.threads, "load": round(os.getloadavg()[0], 2),
            "torch": torch.__version__, "transformers": transformers.__version__, "dtype": "float32",
            "prompts": args.limit, "new_tokens": args.new_tokens}


def write_golden(args, prompts):
    target = load(args.target)
    sequences = []
    for prompt in prompts:
        tokens, _ = generate(target, prompt["prompt_token_ids"], args.new_tokens)
        relative = margins(target, prompt["prompt_token_ids"], tokens)
        sequences.append({"id": prompt["id"], "token_ids": tokens, "relative_margins": [float(f"{m:.3g}") for m in relative]})
    lines = ",\n".join("  " + json.dumps(sequence) for sequence in sequences)
    header = {"made_by": "bench/peers/transformers.py --golden", "transformers": transformers.__version__,
              "torch": torch.__version__, "dtype": "float32", "ignore_eos": True, "max_new_tokens": args.new_tokens}
    args.golden.write_text(json.dumps(header)[:-1] + f', "sequences": [\n{lines}\n]}}\n')
    print(f"{args.golden}: {len(sequences)} sequences of {args.new_tokens} tokens,",
          sum(min(s["relative_margins"]) < TIE for s in sequences), "with a tie")


def report(args, names, results):
    """Prints the table and the ratios, and returns them as plain data."""
    per_token = {name: [seconds / len(tokens) * 1e3 for tokens, seconds in results[name].values()] for name in names}
    total = {name: sum(s for _, s in results[name].values()) / sum(len(t) for t, _ in results[name].values()) * 1e3
             for name in names}
    width = max(map(len, names))
    print(f"\n{'contender':{width}}  ms/token   median      p90      p99")
    for name in names:
        ordered = sorted(per_token[name])
        at = [ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.9, 0.99)]
        print(f"{name:{width}}  {total[name]:8.4f} {statistics.median(ordered):8.4f} {at[0]:8.4f} {at[1]:8.4f}")

    def best(prefix):
        return min((name for name in names if name.startswith(prefix)), key=total.get, default=None)

    plain, rule, assisted = "entrodraft plain", best("entrodraft rule"), best("transformers assisted")
    ratios = {}
    for over, under in (("transformers plain", plain), ("transformers plain", rule), (assisted, rule), (plain, rule)):
        if over in total and under in total:
            pairs = [a / b for a, b in zip(per_token[over], per_token[under])]
            ratios[f"{over} / {under}"] = {"of_totals": total[over] / total[under], "median": statistics.median(pairs)}
    print("\nratio of totals   median over prompts")
    for name, ratio in ratios.items():
        print(f"{ratio['of_totals']:15.2f} {ratio['median']:21.2f}   {name}")
    return {"ms_per_token": total, "median_ms_per_token": {n: statistics.median(per_token[n]) for n in names},
            "ratios": ratios}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft")
    parser.add_argument("--prompts", type=pathlib.Path, required=True, help="JSONL of id and prompt_token_ids")
    parser.add_argument("--limit", type=int, default=64, help="how many prompts, from the first")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--block", type=int, default=8, help="prompts a block")
    parser.add_argument("--binary", help="build/entrodraft; without it, transformers alone is timed")
    parser.add_argument("--rule", action="append", help="stop rule and its options; repeatable [static, moving-average, cumulative]")
    parser.add_argument("--assisted-tokens", type=int, action="append", default=[],
                        help="also time assisted generation with this constant draft length; repeatable")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here too")
    parser.add_argument("--golden", type=pathlib.Path, help="write transformers' greedy continuations here, and time nothing")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    prompts = [json.loads(line) for line in args.prompts.read_text().splitlines()][:args.limit]
    args.limit = len(prompts)
    if args.golden:
        return write_golden(args, prompts)

    target = load(args.target)
    contenders = [Transformers("transformers plain", target)]
    if args.draft:
        draft = load(args.draft)
        contenders += [Assisted(target, draft, tokens) for tokens in [None, *args.assisted_tokens]]
    if args.binary:
        args.binary = str(pathlib.Path(args.binary).resolve())
        contenders.append(Entrodraft("entrodraft plain", args, None))
        for rule in (args.rule or ["static", "moving-average", "cumulative"]) if args.draft else []:
            contenders.append(Entrodraft(f"entrodraft rule {rule}", args, rule))

    setting = environment(args)
    print(", ".join(f"{key} {value}" for key, value in setting.items()))
    results = {contender.name: {} for contender in contenders}
    for number, start in enumerate(range(0, len(prompts), args.block)):
        turn = number % len(contenders)
        for contender in contenders[turn:] + contenders[:turn]:
            results[contender.name].update(contender.run(prompts[start:start + args.block], args.new_tokens))
    for contender in contenders[1:]:
        ties = compare_texts(contender.name, target, prompts, results["transformers plain"], results[contender.name])
        print(f"{contender.name}: {len(prompts) - ties} of {len(prompts)} texts equal to transformers plain")
    figures = report(args, [contender.name for contender in contenders], results)
    if args.json:
        args.json.write_text(json.dumps({"environment": setting, **figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
