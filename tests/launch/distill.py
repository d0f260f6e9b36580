#!/usr/bin/env python3
"""distill from outside: killed and resumed, on two ranks, of a target's layers; what it writes loads and drafts.

A run that is killed at random moments and resumed ends with the bytes of one that was not. Where transformers is
installed, it loads the draft and continues a text as we do. Skipped (77) without the torch backend.

  distill.py BINARY MPIRUN..
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

DEMO = pathlib.Path(__file__).resolve().parents[2] / "model/demo"
BINARY, MPIRUN = sys.argv[1], sys.argv[2:]
OPTIONS = ["--target", str(DEMO / "target"), "--input", str(DEMO / "prompts.jsonl"), "--prompts", "12",
           "--max-new-tokens", "16", "--held-out", "4", "--threads", "1"]
TRAINING = ["--steps", "24", "--evaluate-every", "3", "--texts-a-step", "6", "--warmup-steps", "4"]
DRAFT = ["--draft", str(DEMO / "smallest"), "--learning-rate", "5e-4"]


def run(*options, ranks=1):
    command = (MPIRUN + ["-n", str(ranks)] if ranks > 1 else []) + [BINARY, *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def must(*options, ranks=1):
    done = run(*options, ranks=ranks)
    assert done.returncode == 0, f"{options}: exit code {done.returncode}: {done.stderr}"
    return done


def must_fail(code, words, *options):
    done = run(*options)
    assert done.returncode == code and words in done.stderr, f"{options}: {done.returncode}: {done.stderr}"


def report(output):
    return json.loads((output / "distill.json").read_text(encoding="utf-8"))


def kill_and_resume(scratch, rng):
    """Each death at a moment of its own, of a run that learns texts of the draft's own as well."""
    whole, output, deaths = scratch / "undisturbed", scratch / "killed", 0
    options = ["distill", *OPTIONS, *DRAFT, *TRAINING, "--own-texts", "2", "--patience", "9", "--output"]
    must(*options, whole)
    command = [BINARY, *options, str(output)]
    while True:
        process = subprocess.Popen(command + ["--resume"] * output.exists(), stderr=subprocess.PIPE, text=True)
        time.sleep(rng.uniform(0.2, 4))
        if deaths == 6 or process.poll() is not None:
            _, messages = process.communicate()
            assert process.returncode == 0, messages
            break
        process.send_signal(signal.SIGKILL)
        process.communicate()
        deaths += 1
    for file in ("model.safetensors", "config.json", "training/texts.safetensors", "training/own_texts.safetensors",
                 "training/state.safetensors"):
        assert (output / file).read_bytes() == (whole / file).read_bytes(), f"{file} differs after {deaths} deaths"
    assert report(output)["evaluations"] == report(whole)["evaluations"]
    return deaths


def encoder_and_decoder(scratch):
    """A T5 draft learns, and the target's texts stay what they are."""
    output, pair = scratch / "t5", [DEMO / "t5/target", DEMO / "t5/draft"]
    must("distill", "--target", pair[0], "--draft", pair[1], "--input", DEMO / "t5/prompts.jsonl", "--prompts", "12",
         "--max-new-tokens", "24", "--held-out", "4", "--threads", "1", *TRAINING, "--own-texts", "1", "--patience", "9",
         "--output", output)
    figures = report(output)["evaluations"]
    assert figures[0]["overlap"] > 0.6, figures  # 0.81 on held-out text; without the source it guesses
    assert figures[-1]["training_loss"] < 0.9 * figures[1]["training_loss"], figures
    text = ["generate", "--target", pair[0], "--prompt", "it was a dark night said holmes", "--max-new-tokens", "40", "--quiet"]
    assert must(*text, "--draft", output).stdout == must(*text).stdout
    must_fail(2, "has an encoder", "distill", "--target", pair[0], "--layers", "1", "--input", DEMO / "t5/prompts.jsonl",
              "--output", scratch / "none")


def kill_while_texts_are_made(scratch):
    """What was continued before the death is not continued again, and the texts are those of an undisturbed run."""
    prompts = ["--target", str(DEMO / "target"), "--input", str(DEMO / "prompts.jsonl"), "--prompts", "48", "--threads", "1",
               *DRAFT, *TRAINING]
    longer, whole, output = ["--max-new-tokens", "96"], scratch / "all_texts", scratch / "killed_texts"
    must("distill", *prompts, *longer, "--output", whole)
    continued = output / "training/continued.jsonl"
    process = subprocess.Popen([BINARY, "distill", *prompts, *longer, "--output", str(output)], stderr=subprocess.DEVNULL)
    while process.poll() is None and (not continued.exists() or continued.read_bytes().count(b"\n") < 10):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    found = continued.read_bytes().count(b"\n") - 1  # behind what they are made by
    assert 9 <= found < 96, found
    must_fail(2, "other options or prompts", "distill", *prompts, "--max-new-tokens", "95", "--output", output, "--resume")
    resumed = must("distill", *prompts, *longer, "--output", output, "--resume")
    assert f"{found} of 96 texts were continued before" in resumed.stderr, resumed.stderr
    texts = "training/texts.safetensors"
    assert (output / texts).read_bytes() == (whole / texts).read_bytes()
    assert not continued.exists()
    return found


def refusals(scratch, texts):
    """What is refused leaves nothing."""
    nothing = ["--output", scratch / "none"]
    must_fail(2, "has an encoder", "distill", "--target", DEMO / "t5/target", *TRAINING, "--texts", texts, "--layers", "1",
              *nothing)
    must_fail(1, "cannot be opened", "distill", *OPTIONS[:2], *DRAFT, "--input", scratch / "no.jsonl", *nothing)
    assert not (scratch / "none").exists()


def first_greedy_mismatch(output):
    text = ["generate", "--target", DEMO / "target", "--prompt", "It was a dark night", "--max-new-tokens", "40", "--quiet"]
    return must(*text).stdout, must(*text, "--draft", output).stdout


def transformers_loads(output):
    try:
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError:
        return "not installed here"
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(output, dtype=torch.float32)
    prompt = json.loads((DEMO / "prompts.jsonl").read_text(encoding="utf-8").splitlines()[0])["prompt_token_ids"]
    text = model.generate(torch.tensor([prompt]), max_new_tokens=30, do_sample=False)[0, len(prompt):].tolist()
    ours = must("generate", "--target", output, "--input", DEMO / "prompts.jsonl", "--max-new-tokens", "30", "--quiet")
    assert json.loads(ours.stdout.splitlines()[0])["token_ids"] == text
    return "the same text"


def main():
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="entrodraft-distill-"))
    whole = scratch / "whole"
    done = run("distill", *OPTIONS, *DRAFT, *TRAINING, "--output", whole)
    if done.returncode == 2 and "-DENTRODRAFT_TORCH=ON" in done.stderr:
        print("skipped:", done.stderr.strip())
        sys.exit(77)
    assert done.returncode == 0, done.stderr
    made = report(whole)
    losses = [each["training_loss"] for each in made["evaluations"][1:]]
    assert losses[-1] < 0.6 * losses[0], losses
    assert made["after"]["overlap"] > made["before"]["overlap"]

    plain, drafted = first_greedy_mismatch(whole)
    assert plain == drafted
    print("transformers:", transformers_loads(whole))

    must_fail(2, "holds something", "distill", *OPTIONS, *DRAFT, *TRAINING, "--output", whole)
    must_fail(2, "other options", "distill", *OPTIONS, *DRAFT, *TRAINING, "--loss", "tvd", "--output", whole, "--resume")
    must_fail(2, "--layers", "distill", *OPTIONS, "--output", scratch / "none")
    must_fail(2, "has 6 layers", "distill", *OPTIONS, "--layers", "7", "--output", scratch / "none")

    texts = whole / "training/texts.safetensors"
    again = scratch / "texts"
    must("distill", *OPTIONS[:2], *DRAFT, *TRAINING, "--threads", "1", "--texts", texts, "--output", again)
    assert (again / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()

    two = scratch / "two"
    must("distill", *OPTIONS, *DRAFT, *TRAINING, "--output", two, ranks=2)
    for one, other in zip(made["evaluations"], report(two)["evaluations"]):
        for figure in ("loss", "overlap"):
            assert abs(one[figure] - other[figure]) < 2e-3, f"{figure} on two ranks: {one} {other}"

    layers = scratch / "layers"
    must("distill", *OPTIONS, "--layers", "2", *TRAINING, "--learning-rate", "1e-3", "--output", layers)
    figures = report(layers)["evaluations"]
    assert figures[-1]["overlap"] > figures[0]["overlap"] + 0.05, figures
    plain, drafted = first_greedy_mismatch(layers)
    assert plain == drafted

    fresh = scratch / "fresh"
    must("distill", *OPTIONS[:2], "--layers", "1", "--hidden", "64", *TRAINING, "--learning-rate", "3e-3", "--threads", "1",
         "--texts", texts, "--output", fresh)
    figures = report(fresh)
    assert figures["after"]["overlap"] > figures["before"]["overlap"] + 0.03, figures
    print("transformers, of a fresh draft:", transformers_loads(fresh))

    refusals(scratch, texts)
    encoder_and_decoder(scratch)
    print("texts made before a death:", kill_while_texts_are_made(scratch))
    seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
    print("seed", seed)
    print("deaths:", kill_and_resume(scratch, random.Random(seed)))
    subprocess.run(["rm", "-r", scratch], check=True)


if __name__ == "__main__":
    main()
