#!/usr/bin/env python3
"""A real pair, plain and with its draft, beside llama.cpp and OpenVINO GenAI: milliseconds a token after the first.

    python3 bench/peers/real_pair.py MODELS [--llama DIR] [--openvino PYTHON] [--prompts 6] [--new-tokens 96]
        [--rounds 2] [--threads 2] [--only WORD] [--json FILE]

MODELS holds the pair in the forms to compare; a form that is not there is left out by name:

    target, draft                     Hugging Face directories: ours in bfloat16, int8 and int4
    target-TYPE.gguf, draft-TYPE.gguf with TYPE bf16, q8_0 or q4_k_m: llama.cpp; q4_k_m ours too
    target-ov-TYPE, draft-ov-TYPE     with TYPE fp16, int8 or int4: OpenVINO GenAI

--llama is a build of llama.cpp with llama-server, --openvino a Python that can import openvino_genai. Prompts are the
first of HumanEval, as raw text; decoding is greedy and the end of text is ignored. Contenders take turns, each in a
process of its own, and the order turns round from round to round. A figure is the median over prompts and rounds.
Beside it stands in how many texts an engine's text with a draft is its own plain text.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import llama_cpp
import side_by_side
from side_by_side import DRAFT, PLAIN, ROOT, Answer, machine

LLAMA_DRAFTS = {"4 tokens, p 0.5": ["--spec-draft-n-max", 4, "--spec-draft-p-min", 0.5]}
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


class OpenVino:
    def __init__(self, name, group, command):
        self.name, self.group, self.command = name, group, command

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
    """Plain, and with the draft and the default rule."""
    each = argparse.Namespace(binary=options.binary, target=target, threads=options.threads, device="cpu")
    dtype = types[0] if types else "auto"
    return [side_by_side.Entrodraft(f"{form}, plain", PLAIN, each, dtype),
            side_by_side.Entrodraft(f"{form}, draft", DRAFT, each, dtype, "--draft", draft,
                                    *(["--draft-dtype", dtype] if types else []))]


def llama(options, form, target, draft):
    known = llama_cpp.Options(options.server)
    base = llama_cpp.base_command(options, known, options.server, target, 1024)
    base_of_drafts = [*base, "-md", str(draft), "--spec-type", "draft-simple"]
    drafts = [llama_cpp.Server(f"{form}, draft, {name}", DRAFT, base_of_drafts, *settings)
              for name, settings in LLAMA_DRAFTS.items()]
    return [llama_cpp.Server(f"{form}, plain", PLAIN, base), *drafts]


def openvino(options, form, target, draft):
    def command(of_draft, settings):
        return [options.openvino, "-c", OPENVINO_WORKER, str(target), str(of_draft), str(options.threads),
                json.dumps(settings)]

    return [OpenVino(f"OpenVINO {form}, plain", PLAIN, command("", {})),
            *(OpenVino(f"OpenVINO {form}, draft, {name}", DRAFT, command(draft, settings))
              for name, settings in OPENVINO_DRAFTS.items())]


def contenders_of(options):
    """Engine by engine: lists of a plain one and those with the draft."""
    def pair(form):
        found = [options.models / name.format(form) for name in ("target{}", "draft{}")]
        missing = [str(path) for path in found if not path.exists()]
        if missing:
            print(f"left out: {' and '.join(missing)} not there")
        return None if missing else found

    groups = []
    if directories := pair(""):
        groups += [ours(options, form, *directories, form) for form in ("bfloat16", "int8", "int4")]
    if files := pair("-q4_k_m.gguf"):
        groups.append(ours(options, "Q4_K_M", *files))
    for form in ("bf16", "q8_0", "q4_k_m") if options.llama else ():
        if files := pair(f"-{form}.gguf"):
            groups.append(llama(options, form, *files))
    for form in ("fp16", "int8", "int4") if options.openvino else ():
        if directories := pair(f"-ov-{form}"):
            groups.append(openvino(options, form, *directories))
    return [group for group in groups if options.only in group[0].name]


def prompts_of(options):
    """Token ids, by the target's tokenizer."""
    with open(ROOT / "bench/tasks/data/human_eval.jsonl", encoding="utf-8") as questions:
        texts = [json.loads(line)["prompt"] for line in questions][:options.prompts]
    model = next(path for path in (options.models / "target-q4_k_m.gguf", options.models / "target") if path.exists())
    answer = subprocess.run([options.binary, "tokenize", "--model", model, "--add-special-tokens", "--input", "-"],
                            input="".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)),
                            stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line)["token_ids"] for line in answer.stdout.splitlines()]


def take_turn(contender, prompts, new_tokens):
    """An answer a prompt, after some tokens that are not timed."""
    contender.start()
    try:
        contender.ask(prompts[-1], 16)
        return [contender.ask(prompt, new_tokens) for prompt in prompts]
    finally:
        contender.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/entrodraft")
    parser.add_argument("--llama", type=pathlib.Path)
    parser.add_argument("--openvino")
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="only engines and forms whose name holds this")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    side_by_side.check_counts(parser, options, "prompts", "new_tokens", "rounds", "threads")
    if options.llama:
        options.server = llama_cpp.find_server(options.llama)
    groups, prompts = contenders_of(options), prompts_of(options)
    contenders = [contender for group in groups for contender in group]
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    side_by_side.warn_of_load("at the start")
    answers = {contender.name: [] for contender in contenders}
    for number in range(options.rounds):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            answers[contender.name] += take_turn(contender, prompts, options.new_tokens)
            print(f"round {number + 1}: {contender.name}", file=sys.stderr)
    figures = []
    for group in groups:
        plain = answers[group[0].name]
        for contender in group:
            got = answers[contender.name]
            ms = [(a.seconds - a.first) / (len(a.tokens) - 1) * 1e3 for a in got]
            equal = sum(a.tokens == b.tokens for a, b in zip(got, plain))
            figures.append({"name": contender.name, "ms_per_token": round(statistics.median(ms), 1),
                            "first_ms": round(statistics.median(a.first for a in got) * 1e3),
                            "equal_to_plain": equal, "texts": len(got),
                            "ms_of_texts": [round(value, 1) for value in ms]})
            print("{name:40} {ms_per_token:7} ms a token, first after {first_ms} ms, {equal_to_plain} of {texts} texts "
                  "as plain".format(**figures[-1]))
    side_by_side.save(options.json, {"environment": machine(), "prompts": options.prompts,
                                     "new_tokens": options.new_tokens, "rounds": options.rounds, "figures": figures})


if __name__ == "__main__":
    main()
