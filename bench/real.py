#!/usr/bin/env python3
"""A real pair in every engine that is there: milliseconds a token, the first token, and whose texts a draft changes.

    python3 bench/real.py --models DIR --output FILE.json [--picture FILE.svg] [--llama DIR] [--openvino PYTHON]
        [--transformers PYTHON] [--human-eval 16] [--spec-bench 2] [--new-tokens 96] [--repetitions 3] [--threads 2]
        [--target NAME] [--draft NAME] [--draft-vocab 65536] [--only WORD]

DIR holds target and draft under the names that they have on the hub; a form that is not there is left out by name:

    qwen2.5-coder-1.5b-instruct-q4_k_m.gguf   a GGUF file: ours, and llama.cpp
    Qwen2.5-Coder-1.5B-Instruct               a directory: ours in int4, and transformers in bfloat16
    Qwen2.5-Coder-1.5B-Instruct-int4-ov       a directory: OpenVINO GenAI

--llama is a build of llama.cpp with llama-server; --openvino and --transformers are Pythons that can import
openvino_genai, or torch and transformers. Prompts are the first of HumanEval, as raw text, and of each category of
Spec-Bench, in the target's chat template. Decoding is greedy, and the end of text is ignored. Engines take turns, each
in a process of its own, and every second repetition goes the other way. Figures are medians over prompts and
repetitions. "As plain" counts the texts that are those of the same engine without a draft. Ours runs with the default
rule: once with all tokens of the draft, once with the --draft-vocab lowest ones (0: not).

FILE.json is written after every turn. What it holds already is not measured again.
"""

import argparse
import hashlib
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from rounds_picture import box, text

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "peers"))

import llama_server  # noqa: E402
import side_by_side  # noqa: E402
from side_by_side import DRAFT, PLAIN, ROOT, Answer, machine  # noqa: E402

SETS = ("HumanEval", "Spec-Bench")
COLOURS = {PLAIN: "#bab0ac", DRAFT: "#4e79a7"}
LLAMA_DRAFT = ["--spec-draft-n-max", 4, "--spec-draft-p-min", 0.5]
OPENVINO_DRAFTS = {"4 tokens": {"num_assistant_tokens": 4}, "confidence 0.4": {"assistant_confidence_threshold": 0.4}}
OPENVINO_WORKER = """
import json, sys, openvino, openvino_genai as genai
target, draft, threads, settings = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
more = {"draft_model": genai.draft_model(draft, "CPU", INFERENCE_NUM_THREADS=threads)} if draft else {}
pipe = genai.LLMPipeline(target, "CPU", INFERENCE_NUM_THREADS=threads, **more)
for line in sys.stdin:
    prompt, new_tokens = json.loads(line)
    config = genai.GenerationConfig(max_new_tokens=new_tokens, ignore_eos=True, do_sample=False, **settings)
    answer = pipe.generate(openvino.Tensor([prompt]), config)
    times = answer.perf_metrics
    print(json.dumps([list(answer.tokens[0]), times.get_ttft().mean, times.get_generate_duration().mean]), flush=True)
"""
TRANSFORMERS_WORKER = """
import json, sys, time, torch, transformers
target, draft, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.set_num_threads(threads)
def load(directory):
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).eval()
    model.generation_config.eos_token_id = None
    return model
model, more = load(target), {"assistant_model": load(draft)} if draft else {}
class Clock(transformers.StoppingCriteria):
    def __call__(self, ids, scores, **kwargs):
        self.first = self.first or time.perf_counter()
        return torch.zeros(1, dtype=torch.bool)
for line in sys.stdin:
    prompt, new_tokens = json.loads(line)
    ids, clock = torch.tensor([prompt]), Clock()
    clock.first, began = None, time.perf_counter()
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new_tokens,
                         pad_token_id=0, stopping_criteria=[clock], **more)
    ended = time.perf_counter()
    print(json.dumps([out[0, len(prompt):].tolist(), 1e3 * (clock.first - began), 1e3 * (ended - began)]), flush=True)
"""


class Worker:
    """A Python of another environment, which answers a line with tokens, ms to the first of them, and ms of all."""

    def __init__(self, name, group, *command):
        self.name, self.group, self.command = name, group, list(map(str, command))

    def start(self):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        text=True)

    def ask(self, prompt, new_tokens):
        self.process.stdin.write(json.dumps([prompt, new_tokens]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            sys.exit(f"{self.name}: ended with {self.process.wait()}\n{self.log.read()[-2000:]}")
        tokens, first_ms, all_ms = json.loads(line)
        return Answer(tokens, all_ms / 1e3, None, first_ms / 1e3)

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        self.log.close()


def ours(options, form, target, draft, *types):
    """Plain, with the draft, and with a part of the draft's tokens."""
    each = argparse.Namespace(binary=options.binary, target=target, threads=options.threads, device="cpu")
    dtype, more = (types[0], ["--draft-dtype", types[0]]) if types else ("auto", [])
    with_draft = [DRAFT, each, dtype, "--draft", draft, *more]
    drafts = [side_by_side.Entrodraft(f"{form}, draft", *with_draft)]
    if options.draft_vocab:
        drafts.append(side_by_side.Entrodraft(f"{form}, draft, {options.draft_vocab:,} tokens", *with_draft,
                                              "--draft-vocab", options.draft_vocab))
    return [side_by_side.Entrodraft(f"{form}, plain", PLAIN, each, dtype), *drafts]


def llama(options, form, target, draft):
    server = llama_server.find_server(options.llama)
    base = llama_server.base_command(options, llama_server.Options(server), server, target, 2048)
    return [llama_server.Server(f"{form}, plain", PLAIN, base),
            llama_server.Server(f"{form}, draft", DRAFT, [*base, "-md", str(draft), "--spec-type", "draft-simple"],
                             *LLAMA_DRAFT)]


def openvino(options, form, target, draft):
    def worker(name, group, of_draft, settings):
        return Worker(f"OpenVINO {form}, {name}", group, options.openvino, "-c", OPENVINO_WORKER, target, of_draft,
                      options.threads, json.dumps(settings))

    return [worker("plain", PLAIN, "", {}),
            *(worker(f"draft, {name}", DRAFT, draft, settings) for name, settings in OPENVINO_DRAFTS.items())]


def transformers(options, form, target, draft):
    def worker(name, group, of_draft):
        return Worker(f"transformers {form}, {name}", group, options.transformers, "-c", TRANSFORMERS_WORKER, target,
                      of_draft, options.threads)

    return [worker("plain", PLAIN, ""), worker("draft", DRAFT, draft)]


def found(options, model, ending):
    """The path under `model`'s name on the hub, in whatever case."""
    wanted = (model + ending).lower()
    return next((path for path in sorted(options.models.iterdir()) if path.name.lower() == wanted), None)


def groups_of(options):
    """Engine by engine: lists of a plain one and those with the draft."""
    groups = []

    def add(ending, *makes):
        pair = [found(options, model, ending) for model in (options.target, options.draft)]
        if None in pair:
            print(f"left out: {options.target}{ending} and its draft are not both there")
        else:
            groups.extend(make(*pair) for make in makes)

    add("-q4_k_m.gguf", lambda *pair: ours(options, "Q4_K_M", *pair),
        *([lambda *pair: llama(options, "Q4_K_M", *pair)] if options.llama else []))
    add("", lambda *pair: ours(options, "int4", *pair, "int4"))
    if options.openvino:
        add("-int4-ov", lambda *pair: openvino(options, "int4", *pair))
    if options.transformers:
        add("", lambda *pair: transformers(options, "bfloat16", *pair))
    groups = [group for group in groups if options.only in group[0].name]
    if not groups:
        sys.exit("nothing to measure")
    return groups


def prompts_of(options):
    """[(set, token ids)]"""
    def lines_of(name):
        with open(ROOT / f"bench/tasks/data/{name}.jsonl", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    asked = [(SETS[0], {"text": line["prompt"]}) for line in lines_of("human_eval")[:options.human_eval]]
    seen = {}
    for line in lines_of("spec_bench"):
        seen[line["category"]] = seen.get(line["category"], 0) + 1
        if seen[line["category"]] <= options.spec_bench:
            asked.append((SETS[1], {"messages": [{"role": "user", "content": line["turns"][0]}]}))
    model = found(options, options.target, "-q4_k_m.gguf") or found(options, options.target, "")
    command = [options.binary, "tokenize", "--model", model, "--add-special-tokens", "--input", "-"]
    answer = subprocess.run(command, input="".join(json.dumps(line) + "\n" for _, line in asked),
                            stdout=subprocess.PIPE, text=True, check=True)
    return [(name, json.loads(line)["token_ids"]) for (name, _), line in zip(asked, answer.stdout.splitlines())]


def digest(tokens):
    return hashlib.sha256(json.dumps(tokens).encode()).hexdigest()[:16]


def take_turn(contender, prompts, new_tokens):
    """[digest of the tokens, seconds to the first, ms a token after it] of each prompt, after a text that is not timed."""
    contender.start()
    try:
        contender.ask(prompts[-1][1], 16)
        answers = [contender.ask(prompt, new_tokens) for _, prompt in prompts]
    finally:
        contender.stop()
    return [[digest(a.tokens), round(a.first, 4), round(1e3 * (a.seconds - a.first) / (len(a.tokens) - 1), 3)]
            for a in answers]


class Turns:
    """Keeps what was measured in a file that is written after every turn."""

    def __init__(self, path, settings):
        self.path, self.all = path, {"environment": machine(), **settings, "turns": {}}
        if path.exists():
            before = json.loads(path.read_text())
            for key, value in self.all.items():
                if key != "turns" and before.get(key) != value:
                    sys.exit(f"{path}: was measured with {key} {before.get(key)}, not {value}; name another file")
            self.all = before

    def of(self, contender):
        return self.all["turns"].setdefault(contender.name, [])

    def add(self, contender, turn):
        self.of(contender).append(turn)
        self.path.write_text(json.dumps(self.all) + "\n")


def measure(contenders, prompts, options, turns):
    for number in range(options.repetitions):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            if len(turns.of(contender)) <= number:
                turns.add(contender, take_turn(contender, prompts, options.new_tokens))
                print(f"repetition {number + 1}: {contender.name}", file=sys.stderr)


def figures_of(groups, prompts, turns):
    figures = []
    for group in groups:
        plain = turns.of(group[0])
        for contender in group:
            got = turns.of(contender)
            each = [(prompts[i][0], *values) for turn in got for i, values in enumerate(turn)]
            equal = sum(a[0] == b[0] for turn in got for a, b in zip(turn, plain[0]))
            figures.append({"name": contender.name, "group": contender.group, "texts": len(each), "as_plain": equal,
                            **{f"ms of {name}": statistics.median(ms for of, _, _, ms in each if of == name)
                               for name in SETS if any(of == name for of, *_ in each)},
                            "first ms": 1e3 * statistics.median(first for _, _, first, _ in each)})
    return figures


def print_table(figures):
    names = [name for name in SETS if f"ms of {name}" in figures[0]]
    print("| " + " | ".join(["engine, weights", *(f"ms a token, {name}" for name in names), "first token after ms",
                             "texts as plain", "of"]) + " |")
    print("|" + " --- |" * (len(names) + 4))
    for figure in figures:
        cells = [f"{figure[f'ms of {name}']:.1f}" for name in names]
        print("| " + " | ".join([figure["name"], *cells, f"{figure['first ms']:,.0f}", str(figure["as_plain"]),
                                 str(figure["texts"])]) + " |")


def draw(figures, path, about):
    """Bars of ms a token, a panel for each set of prompts."""
    names = [name for name in SETS if f"ms of {name}" in figures[0]]
    left, bar, gap, width = 230, 14, 5, 860
    panel = (width - left - 30) / len(names)
    most = max(figure[f"ms of {name}"] for figure in figures for name in names)
    height = 52 + len(figures) * (bar + gap)
    parts = [text(4, 16, about, size=12)]
    for column, name in enumerate(names):
        at = left + column * (panel + 10)
        parts.append(text(at, 38, f"{name}: ms a token"))
        for row, figure in enumerate(figures):
            y, value = 46 + row * (bar + gap), figure[f"ms of {name}"]
            if column == 0:
                parts.append(text(left - 8, y + bar - 3, figure["name"], "end"))
            parts.append(box(at, y, value / most * (panel - 50), bar, COLOURS[figure["group"]]))
            parts.append(text(at + value / most * (panel - 50) + 4, y + bar - 3, f"{value:.1f}"))
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">\n'
                    f'<rect width="{width}" height="{height}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--picture", type=pathlib.Path)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/entrodraft")
    parser.add_argument("--llama", type=pathlib.Path)
    parser.add_argument("--openvino")
    parser.add_argument("--transformers")
    parser.add_argument("--target", default="Qwen2.5-Coder-1.5B-Instruct")
    parser.add_argument("--draft", default="Qwen2.5-Coder-0.5B-Instruct")
    parser.add_argument("--draft-vocab", type=int, default=65536)
    parser.add_argument("--human-eval", type=int, default=16)
    parser.add_argument("--spec-bench", type=int, default=2, help="questions of each category; 0: none")
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="only engines and forms whose name holds this")
    options = parser.parse_args()
    side_by_side.check_counts(parser, options, "human_eval", "new_tokens", "repetitions", "threads")
    if not options.models.is_dir():
        parser.error(f"--models {options.models}: no such directory")
    for name in ("binary", "openvino", "transformers"):
        program = getattr(options, name)
        if program and not shutil.which(program):
            parser.error(f"--{name} {program}: no such program")
    groups, prompts = groups_of(options), prompts_of(options)
    settings = {"target": options.target, "draft": options.draft, "threads": options.threads,
                "new_tokens": options.new_tokens, "human_eval": options.human_eval, "spec_bench": options.spec_bench}
    turns = Turns(options.output, settings)
    side_by_side.warn_of_load("at the start")
    measure([contender for group in groups for contender in group], prompts, options, turns)
    figures = figures_of(groups, prompts, turns)
    print(", ".join(f"{key} {value}" for key, value in turns.all["environment"].items()))
    print_table(figures)
    if options.picture:
        draw(figures, options.picture, f"{options.target} and its draft {options.draft}, {options.threads} threads, "
                                       f"{turns.all['environment']['cpu']}")


if __name__ == "__main__":
    main()
