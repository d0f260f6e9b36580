#!/usr/bin/env python3
"""Does the program do what it did? For changes of the code's form: its behaviour, saved before, is compared after.

    tests/hold.py save FOLDER [--build build] [--recording FILE ...] [--parts LIST]
    tests/hold.py compare FOLDER [--build build] [--parts LIST]

FOLDER holds held.json: a digest of each thing, by name. `compare` makes the same digests with the program of now, names those that
differ, and ends with 1 if there are any. The parts:

    help        all pages, and `help --json`
    refusals    every option of every command without a value, with a wrong value, twice and misspelt: message and exit code
    inspect     all checkpoints of tests/model, and all public shapes, on 1, 2 and 8 ranks of CPUs and GPUs
    texts       tokens, log-probabilities and counts of rounds: families, heads, quantised forms, encoder-decoders, in several types, on
                1 and 2 ranks
    drafting    counts of rounds and texts of the demo pair: every rule, trees, heads, look-ups, placements
    simulate    counts of every rule over the recordings that `save` was given or made; they are kept in FOLDER
    kernels     machine code of the kernels' units (model/cpu, spec/verify), without addresses

What the tests hold (schedules of the protocol, suites on the stand-in, goldens of transformers) is not repeated here.
"""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODELS, DEMO = ROOT / "tests/model", ROOT / "model/demo"
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
COUNTS = ("drafted", "accepted", "target_passes", "rounds")


class Held:
    def __init__(self, program, folder):
        self.program, self.folder, self.found = program, folder, {}

    def run(self, *arguments, ranks=1, codes=(0,), text=None):
        command = [*(MPIRUN + ["-n", str(ranks)] if ranks > 1 else []), self.program, *map(str, arguments)]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=600)
        if codes and done.returncode not in codes:
            raise SystemExit(f"hold.py: {' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
        return done

    def put(self, name, value):
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        self.found[name] = hashlib.sha256(text.replace(str(self.program), "PROGRAM").replace(str(ROOT), "ROOT").encode()).hexdigest()[:16]

    def put_all(self, work):
        """work: {name: function of no arguments}, two at a time."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for name, value in zip(work, pool.map(lambda each: each(), work.values())):
                self.put(name, value)


def commands(held):
    return json.loads(held.run("help", "--json").stdout)["commands"]


def options(command):
    return [option for group in command["groups"] for option in group["options"]]


def help_(held):
    held.put("help --json", held.run("help", "--json").stdout)
    held.put("help", held.run("--help").stdout)
    for command in commands(held):
        held.put(f"help {command['name']}", held.run(*command["name"].split(), "--help").stdout)


def refusals(held):
    work = {}

    def refused(*words):
        def told():
            done = held.run(*words, codes=None)
            return [done.returncode, done.stderr]
        work[f"refused {' '.join(words)}"] = told

    for command in commands(held):
        name = command["name"].split()
        for option in options(command):
            flag = option["name"] if option["name"].startswith("--") else "--" + option["name"]
            for words in ([flag], [flag, "?"], [flag + "=?", flag + "=?"], [flag + "x", "1"], [flag[:-1]]):
                refused(*name, *words)
    held.put_all(work)


def checkpoints():
    """{name: folder} of what tests/model has."""
    found = {}
    for config in sorted(MODELS.glob("*/**/config.json")):
        found[str(config.parent.relative_to(MODELS))] = config.parent
    for file in sorted(MODELS.glob("*/**/*.gguf")):
        found[str(file.relative_to(MODELS))] = file
    return found


def without_times(text):
    return re.sub(r'"header_seconds": ?[\d.e-]+', "", text)


def inspect(held):
    work = {}

    def shown(model, *words):
        done = held.run("inspect", model, "--json", *words, codes=None)
        return [done.returncode, without_times(done.stdout), done.stderr]

    with tempfile.TemporaryDirectory() as scratch:
        places = checkpoints()
        for shape in sorted((ROOT / "tests/launch/public_shapes").glob("*.json")):
            folder = pathlib.Path(scratch) / shape.stem
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(json.loads(shape.read_text())["config"]))
            places[f"public {shape.stem}"] = folder
        for name, folder in places.items():
            for ranks in (1, 2, 8):
                for device in ("cpu", "gpu"):
                    words = ["--tensor-parallel", ranks, "--device", device]
                    work[f"inspect {name} {ranks} {device}"] = (
                        lambda folder=folder, words=words: str(shown(folder, *words)).replace(scratch, "SCRATCH"))
        held.put_all(work)


def decoded(held, arguments, lines, tokens, ranks=1):
    done = held.run("generate", *arguments, "--input", "-", "--max-new-tokens", tokens, "--ignore-eos", "--quiet", "--threads", 1,
                    ranks=ranks, codes=None, text="".join(json.dumps(line) + "\n" for line in lines))
    if done.returncode:  # what the program says of it, not what mpirun says
        return [done.returncode, sorted({line for line in done.stderr.splitlines() if line.startswith("entrodraft")})]
    results = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda line: str(line["id"]))
    return [[line["token_ids"], line.get("logprobs"), [line["stats"].get(count) for count in COUNTS]] for line in results]


def vocabulary(folder):
    config = json.loads((folder / "config.json").read_text()) if folder.is_dir() else {}
    return config.get("vocab_size") or config.get("text_config", {}).get("vocab_size") or 100


def texts(held):
    work = {}
    for name, folder in checkpoints().items():
        kind = name.split("/")[0]
        is_target = name.endswith("target") or folder.suffix == ".gguf"
        if kind not in ("golden", "families", "heads", "quantized", "encoder_decoders") or not is_target:
            continue
        vocab = min(vocabulary(folder), 100)
        ids = [[id % vocab for id in prompt] for prompt in ([7, 3, 11], [41, 2, 9, 30, 8], [19] * 20)]
        if kind == "encoder_decoders":  # a prompt is the source
            ids = [[5, 9, 4, *prompt, 1] for prompt in ids]
        lines = [{"id": i, "prompt_token_ids": prompt} for i, prompt in enumerate(ids)]
        draft = folder.parent / "draft"
        types = ("auto",) if kind == "quantized" else ("float32", "bfloat16", "int8", "int4")
        for dtype in types:
            for ranks in (1, 2):
                common = ["--target", folder, "--dtype", dtype]
                work[f"text {name} {dtype} {ranks}"] = (
                    lambda common=common, lines=lines, ranks=ranks: decoded(held, [*common, "--logprobs", 2], lines, 8, ranks))
                if draft.exists():
                    work[f"text {name} {dtype} {ranks} drafted"] = (
                        lambda common=common, lines=lines, ranks=ranks, draft=draft:
                        decoded(held, [*common, "--draft", draft, "--stop-rule", "static"], lines, 8, ranks))
    for head in sorted((MODELS / "heads").iterdir()):
        if head.name == "target" or not head.is_dir():
            continue
        lines = [{"id": i, "prompt_token_ids": prompt} for i, prompt in enumerate(([7, 3, 11], [41, 2, 9, 30, 8]))]
        for more in ([], ["--tree", "expected-gain", "--stop-rule", "expected-gain"]):
            work[f"head {head.name} {' '.join(more)}"] = (
                lambda head=head, more=more: decoded(
                    held, ["--target", MODELS / "heads/target", "--head", head, "--costs", held.costs, *more], lines, 12))
    held.put_all(work)


def drafting(held):
    lines = [{**json.loads(line)} for line in (DEMO / "prompts.jsonl").read_text().splitlines()[:4]]
    pair = ["--target", DEMO / "target", "--draft", DEMO / "draft", "--costs", held.costs]
    rules = ("static", "moving-average", "cumulative", "constant", "heuristic", "adaptive", "confidence", "svip", "adaedl", "disco",
             "expected-gain")
    settings = {f"rule {rule}": [*pair, "--stop-rule", rule] for rule in rules}
    for tree in ("expected-gain", "eagle2", "medusa-63", "3,2,1"):
        settings[f"tree {tree}"] = [*pair, "--tree", tree, *(["--stop-rule", "expected-gain"] if tree == "expected-gain" else [])]
    alone = ["--target", DEMO / "target"]
    drafters = {"eagle3": ["--head", DEMO / "eagle3"], "medusa": ["--head", DEMO / "medusa"],
                **{name: ["--drafter", name] for name in ("ngram", "suffix", "lookahead")}}
    settings.update({name: [*alone, *words, "--costs", held.costs] for name, words in drafters.items()})
    settings.update({"window": [*pair, "--draft-window", "16:sinks=2"], "plain": alone})
    work = {}
    for name, arguments in settings.items():
        for temperature in (0, 1):
            for acceptance in ("gumbel", "rejection") if temperature else ("gumbel",):
                words = [*arguments, "--temperature", temperature, "--seed", 7]
                words += ["--acceptance", acceptance] if name != "plain" or acceptance == "gumbel" else []
                work[f"drafting {name} {temperature} {acceptance}"] = lambda words=words: decoded(held, words, lines, 48)
    for placement, ranks in (("sharded", 2), ("dedicated", 3)):
        work[f"drafting {placement}"] = (
            lambda placement=placement, ranks=ranks: decoded(held, [*pair, "--stop-rule", "static", "--draft-placement", placement], lines, 48,
                                                             ranks))
    work["drafting batch"] = lambda: decoded(held, [*pair, "--stop-rule", "static", "--batch-size", 4], lines, 48)
    held.put_all(work)


def simulate(held):
    for recording in sorted(held.folder.glob("*.edr")):
        for words in (["--rules", "all,oracle"], ["--rules", "grid", "--best"], ["--method", "imputed", "--rules", "all"]):
            done = held.run("simulate", recording, "--costs", held.costs, "--json", *words, codes=(0, 1, 2))
            shown = done.stdout.replace(str(held.folder), "FOLDER") + done.stderr.replace(str(held.folder), "FOLDER")
            held.put(f"simulate {recording.name} {' '.join(words)}", re.sub(r'"(program|seconds)": ?[^,]*,', "", shown))


def kernels(held):
    build = pathlib.Path(held.program).parent
    for file in sorted([*build.glob("model/**/kernels_*.o"), *build.glob("spec/**/row_kernels*.o")]):
        code = subprocess.run(["objdump", "-d", "--no-addresses", "--no-show-raw-insn", file], capture_output=True, text=True, check=True).stdout
        held.put(f"machine code {file.name}", code.split("\n", 3)[3])


PARTS = {"help": help_, "refusals": refusals, "inspect": inspect, "texts": texts, "drafting": drafting, "simulate": simulate, "kernels": kernels}


def recordings(held, given):
    """Copies into the folder; of the demo pair one is made."""
    for file in given:
        shutil.copy(file, held.folder / f"{file.stem}.edr")
    (held.folder / "demo.edr").unlink(missing_ok=True)
    prompts = held.folder / "demo-prompts.jsonl"
    prompts.write_text("".join((DEMO / "prompts.jsonl").read_text().splitlines(keepends=True)[:8]))
    held.run("record", "--target", DEMO / "target", "--draft", DEMO / "draft", "--costs", held.costs, "--input", prompts, "--max-new-tokens", 96,
             "--output", held.folder / "demo.edr", "--quiet")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("save", "compare"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--recording", type=pathlib.Path, nargs="*", default=[], help="files of `record` whose counts are to be held as well")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), help=f"[{','.join(PARTS)}]")
    given = parser.parse_args()
    held = Held(str((given.build / "entrodraft").resolve()), given.folder.resolve())
    held.costs = held.folder / "costs.json"
    file = held.folder / "held.json"
    if given.what == "save":
        held.folder.mkdir(parents=True, exist_ok=True)
        held.costs.write_text(json.dumps({"schema_version": 1, "t_draft_ms": 2, "t_target_ms": [10 + 0.4 * row for row in range(64)]}))
        recordings(held, given.recording)
    for part in given.parts:
        PARTS[part](held)
        print(f"{part}: {len(held.found)} things so far", flush=True)
    if given.what == "save":
        before = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps({**before, **held.found}, indent=0, sort_keys=True) + "\n")
        return 0
    before = json.loads(file.read_text())
    differing = [name for name, digest in held.found.items() if before.get(name) != digest]
    gone = [name for name in before if name not in held.found] if set(given.parts) == set(PARTS) else []
    for name in differing:
        print(f"differs: {name}")
    print(f"{len(held.found)} compared, {len(differing)} differ, {len(gone)} are gone")
    return 1 if differing or gone else 0


if __name__ == "__main__":
    sys.exit(main())
