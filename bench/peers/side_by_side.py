"""What the peer benches, transformers.py and llama_cpp.py, share: turns, texts compared, one table, ratios.

A contender has a name, a group (PLAIN, DRAFT or LOOKUP), `ours`, `stays` (loaded, once it is), start(), stop() and
ask(prompt ids, new tokens).
It reads prompts by token ids, ignores the end of text, and answers with its own account of a sequence's time (prefill
and decoding) beside the time that passed outside. Prompts go in blocks; in a block all contenders have their turn, in
an order that rotates, each after a few tokens that are not timed. Ours stay loaded, as the default rule learns from
what it decodes; of the peer's modes that hold models of their own at most --resident are loaded at once, and one that
has to be loaded for its turn first decodes a whole sequence that is not timed. After the first repetition those of the
peer's modes drop out that are slower than --keep times the best of their group: those will not become it.
"""

import collections
import contextlib
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))

from runs import DEMO, PAIRS, ROOT, interval, machine  # noqa: E402

PLAIN, DRAFT, LOOKUP = "plain", "draft model", "lookup"
GROUPS = (PLAIN, DRAFT, LOOKUP)
OURS = {PLAIN: "entrodraft plain", DRAFT: "entrodraft default rule", LOOKUP: "entrodraft ngram"}
SKIPPED = 77
CALM = 0.5  # load average above which figures are not for the record

# Token ids; seconds of the whole by its own account, and from outside; of these own ones, those until the first token.
Answer = collections.namedtuple("Answer", "tokens seconds wall first", defaults=[None])


class Entrodraft:
    """generate, reading one line after the other from stdin."""

    ours = stays = True

    def __init__(self, name, group, options, dtype, *arguments):
        self.name, self.group, self.asked = f"entrodraft {name}", group, 0
        self.command = [str(options.binary), "generate", "--target", str(options.target), "--dtype", dtype, "--quiet",
                        "--threads", str(options.threads), "--device", options.device, "--ignore-eos", "--input", "-",
                        *map(str, arguments)]

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, prompt, new_tokens):
        line = {"id": self.asked, "prompt_token_ids": prompt, "max_new_tokens": new_tokens}
        self.asked += 1
        began = time.perf_counter()
        with contextlib.suppress(BrokenPipeError):  # its exit code is told below
            self.process.stdin.write(json.dumps(line) + "\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        wall = time.perf_counter() - began
        if not answer:
            sys.exit(f"{shlex.join(self.command)}\nended with {self.process.wait()}")
        answer = json.loads(answer)
        if "error" in answer:
            sys.exit(f"{shlex.join(self.command)}\nprompt {prompt}: {answer['error']}")
        stats = answer["stats"]
        return Answer(answer["token_ids"], stats["seconds"], wall, stats["ttft_ms"] / 1e3)

    def stop(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


def our_contenders(options, dtype):
    """Plain decoding, the default rule with the draft model and the look-up, which are compared; and each --rule."""
    with_draft = ["--draft", options.draft]
    beams = ["--num-beams", str(options.num_beams)] if options.num_beams > 1 else []
    plain = Entrodraft("plain", PLAIN, options, dtype, *beams)
    if options.plain_only:
        return [plain]
    default = Entrodraft("default rule", DRAFT, options, dtype, *with_draft, *beams)
    if beams:
        return [plain, default]
    return [plain, default,
            Entrodraft("ngram", LOOKUP, options, dtype, "--drafter", "ngram"),
            *(Entrodraft(f"rule {rule}", DRAFT, options, dtype, *with_draft, "--stop-rule", rule)
              for rule in options.rule)]


def add_options(parser, dtypes, dtype):
    parser.add_argument("--target", type=pathlib.Path, default=DEMO / "target")
    parser.add_argument("--draft", type=pathlib.Path, default=DEMO / "draft")
    parser.add_argument("--prompts", type=pathlib.Path, default=DEMO / "prompts.jsonl",
                        help="JSON lines of id and prompt_token_ids")
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/entrodraft")
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=dtype,
                        help=f"one table each, of {','.join(dtypes)} [{','.join(dtype)}]")
    parser.add_argument("--limit", type=int, default=64, help="how many prompts, from the first [64]")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--block", type=int, default=8, help="prompts a turn [8]")
    parser.add_argument("--repetitions", type=int, default=5, choices=[1, *PAIRS])
    parser.add_argument("--keep", type=float, default=1.3, help="see above [1.3]")
    parser.add_argument("--plain-only", action="store_true", help="plain decoding alone: no draft is looked at")
    # Options of some peers: --resident of those whose modes do not stay, --device of those that know several,
    # --num-beams of those that search as we do.
    parser.set_defaults(resident=None, device="cpu", num_beams=1)
    parser.add_argument("--rule", action="append", default=[],
                        help="one more of our stop rules, as --stop-rule takes it; repeatable")
    parser.add_argument("--modes", action="append", default=[],
                        help="only those of the peer's modes whose name holds this, and its plain ones; repeatable")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here too")


def check_counts(parser, options, *names):
    for name in names:
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: at least 1")


def check_models(parser, options, *names):
    for name in names:
        if not (getattr(options, name) / "config.json").is_file():
            parser.error(f"--{name}: {getattr(options, name)} holds no config.json")


def check_options(parser, options, dtypes):
    """Ends with code 2 where an option cannot be honoured."""
    for dtype in options.dtypes:
        if dtype not in dtypes:
            parser.error(f"--dtypes: {dtype} is not one of {', '.join(dtypes)}")
    check_counts(parser, options, "limit", "new_tokens", "threads", "block", "num_beams")
    if options.plain_only:
        for name in ("draft", "rule", "modes"):
            if getattr(options, name) != parser.get_default(name):
                parser.error(f"--{name} has no effect with --plain-only")
    if options.num_beams > 1 and options.rule:
        parser.error("--rule has no effect with --num-beams")
    if options.keep < 1:
        parser.error("--keep: at least 1")
    check_models(parser, options, "target", *([] if options.plain_only else ["draft"]))
    try:
        options.binary = options.binary.resolve()
        about = subprocess.run([str(options.binary), "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        parser.error(f"--binary: {error}")
    options.version = about.stdout.split("\n")[0]


def read_prompts(parser, options):
    """{id: token ids}"""
    prompts = {}
    try:
        lines = options.prompts.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"--prompts {options.prompts}: {getattr(error, 'strerror', None) or error}")
    for number, text in enumerate([line for line in lines if line.strip()][:options.limit]):
        line, why = prompt_of(text)
        if why is None and line.get("id", number) in prompts:
            why = f"a second prompt of the id {line.get('id', number)!r}"
        if why is not None:
            parser.error(f"--prompts {options.prompts}: prompt {number}, from 0: {why}")
        prompts[line.get("id", number)] = line["prompt_token_ids"]
    if not prompts:
        parser.error(f"--prompts {options.prompts}: no prompt")
    return prompts


def prompt_of(text):
    """(the line as an object, None), or (None, why it cannot be used)."""
    try:
        line = json.loads(text)
    except ValueError as error:
        return None, f"not JSON: {error}"
    if not isinstance(line, dict):
        return None, "not an object"
    if isinstance(line.get("id"), (list, dict)):
        return None, "an id that is a list or an object"
    ids = line.get("prompt_token_ids")
    if not isinstance(ids, list) or not ids or not all(type(token) is int and token >= 0 for token in ids):
        return None, "no prompt_token_ids, or these are not numbers of tokens"
    return line, None


def chosen(parser, options, contenders):
    """Those that --modes names, and the plain ones."""
    for word in options.modes:
        if not any(word in contender.name for contender in contenders):
            parser.error(f"--modes: no mode's name holds {word!r}: " + "; ".join(c.name for c in contenders))
    if not options.modes:
        return contenders
    return [c for c in contenders if c.group == PLAIN or any(word in c.name for word in options.modes)]


def environment(options, dtype, prompts, **versions):
    """What figures depend on; `prompts` are those that are used."""
    return {**machine(), "threads": options.threads, "ranks": 1, "load": round(os.getloadavg()[0], 2),
            "ours": options.version, **versions, "dtype": dtype, "prompts": len(prompts),
            "new_tokens": options.new_tokens, "repetitions": options.repetitions,
            "modes": "; ".join(options.modes) or "all", "keep": options.keep,
            **({"resident": options.resident} if options.resident else {})}


def ms_per_token(answers):
    return sum(a.seconds for a in answers.values()) / sum(len(a.tokens) for a in answers.values()) * 1e3


def kept(contenders, results, factor):
    """All of ours, and of the peer's those that may still be the best of their group."""
    best = {}
    for contender in contenders:
        if not contender.ours:
            ms = ms_per_token(results[contender.name][0])
            best[contender.group] = min(best.get(contender.group, ms), ms)
    return [c for c in contenders if c.ours or ms_per_token(results[c.name][0]) <= factor * best[c.group]]


class Loaded:
    """Which contenders are loaded: those that stay, once they had a turn, and of the others at most `most`, those
    whose turns were last. A context: in the end all are stopped."""

    def __init__(self, most):
        self.most, self.staying, self.others = most, [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for contender in self.staying + self.others:
            contender.stop()

    def turn_of(self, contender):
        """Loads it where it is not; returns whether it was not."""
        loaded = self.staying if contender.stays else self.others
        fresh = contender not in loaded
        if fresh:
            if not contender.stays and len(loaded) == self.most:
                loaded.pop(0).stop()
            contender.start()
        else:
            loaded.remove(contender)
        loaded.append(contender)
        return fresh

    def drop(self, contender):
        """Stops what will have no further turn."""
        if contender in self.others:
            self.others.remove(contender)
            contender.stop()


def take_turns(contenders, prompts, options, check):
    """{name: [answers by prompt id, of each repetition]}. check(results) is called after the first repetition."""
    results = {contender.name: [] for contender in contenders}
    ids, turn = list(prompts), 0
    with Loaded(options.resident) as loaded:
        for repetition in range(options.repetitions):
            for contender in contenders:
                results[contender.name].append({})
            for begin in range(0, len(ids), options.block):
                first = turn % len(contenders)
                turn += 1
                for contender in contenders[first:] + contenders[:first]:
                    contender.ask(prompts[ids[0]], options.new_tokens if loaded.turn_of(contender) else 8)
                    for id in ids[begin:begin + options.block]:
                        results[contender.name][-1][id] = contender.ask(prompts[id], options.new_tokens)
            print(f"repetition {repetition + 1} of {options.repetitions}: {len(contenders)} modes", file=sys.stderr)
            if repetition == 0:
                check(results)
                stay = kept(contenders, results, options.keep)
                for contender in contenders:
                    if contender not in stay:
                        loaded.drop(contender)
                contenders = stay
    return results


def parting(want, got):
    """Index of the first token that differs; None for equal texts."""
    if want == got:
        return None
    return next((at for at, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))


def partings(reference, answers):
    """{prompt id: index} of the texts that part."""
    found = {id: parting(reference[id].tokens, answers[id].tokens) for id in reference}
    return {id: at for id, at in found.items() if at is not None}


def check_texts(contenders, results, is_tie, rounding):
    """Ours must equal our plain text; the peer's too, but for ties, where it rounds as we do, else they are counted.

    is_tie(name, id, tokens, at) prints what it found. rounding(name) is why a mode's texts part; None: they may not.
    Returns {name: texts equal}.
    """
    reference = results["entrodraft plain"][0]
    equal = {}
    for contender in contenders:
        parted = partings(reference, results[contender.name][0])
        equal[contender.name] = len(reference) - len(parted)
        if not parted:
            continue
        if contender.ours:
            sys.exit(f"{contender.name}: {len(parted)} of {len(reference)} texts differ from our plain decoding")
        reason = rounding(contender.name)
        if reason:
            print(f"{contender.name}: {len(parted)} of {len(reference)} texts part from ours, at new token "
                  f"{statistics.median(parted.values()):.0f} (median): {reason}")
            continue
        for id, at in parted.items():
            if not is_tie(contender.name, id, reference[id].tokens, at):
                sys.exit(f"{contender.name}: that is no tie: the texts are not equal, so no figures")
        if len(parted) * 64 > max(64, len(reference)):
            sys.exit(f"{contender.name}: {len(parted)} of {len(reference)} texts part, more than 1 in 64: no figures")
    exact = [equal[c.name] for c in contenders if not c.ours and rounding(c.name) is None]
    theirs = f"{min(exact)} or more in each of {len(exact)} modes that round as we do" if exact else "see above"
    print(f"texts equal to our plain decoding, of {len(reference)}: all of ours; the peer's: {theirs}")
    return equal


def measure(contenders, prompts, options, check, equal, title):
    """Takes the turns, prints table and ratios, and returns both as plain data. equal is what check() found."""
    figures = figures_of(contenders, take_turns(contenders, prompts, options, check), equal)
    print_table(figures, f"{title}, ms a new token: medians of repetitions; p50 to p99: of sequences")
    ratios = print_ratios(figures, options.modes)
    warn_of_load("at the end, of which our own threads are a part")
    return {"figures": figures, "ratios": ratios}


def figures_of(contenders, results, equal):
    """{name: plain data}, with the medians over repetitions."""
    figures = {}
    for contender in contenders:
        runs = results[contender.name]
        tokens = [sum(len(a.tokens) for a in answers.values()) for answers in runs]
        sequences = sorted(a.seconds / len(a.tokens) * 1e3 for answers in runs for a in answers.values())
        ms = [ms_per_token(answers) for answers in runs]
        wall = [sum(a.wall for a in answers.values()) / n * 1e3 for answers, n in zip(runs, tokens)]
        figures[contender.name] = {
            "group": contender.group, "ours": contender.ours, "ms_per_token_of_repetitions": ms,
            "ms_per_token": statistics.median(ms), "wall_ms_per_token": statistics.median(wall),
            "tokens_per_second": 1e3 / statistics.median(ms), "texts_equal": equal[contender.name],
            **{f"p{share}": sequences[share * len(sequences) // 100] for share in (50, 90, 99)}}
    return figures


def print_table(figures, title):
    width = max(map(len, figures))
    print(f"\n{title}\n{'mode':{width}}  ms/token    wall  tokens/s    p50    p90    p99  runs  texts  over ours")
    in_order = sorted(figures.items(), key=lambda item: (GROUPS.index(item[1]["group"]), item[1]["ms_per_token"]))
    for name, one in in_order:
        ratio = one["ms_per_token"] / figures[OURS[one["group"]]]["ms_per_token"]
        print(f"{name:{width}}  {one['ms_per_token']:8.3f} {one['wall_ms_per_token']:7.3f} "
              f"{one['tokens_per_second']:9.0f} {one['p50']:6.3f} {one['p90']:6.3f} {one['p99']:6.3f} "
              f"{len(one['ms_per_token_of_repetitions']):5} {one['texts_equal']:6}  {ratio:9.2f}")


def ratio_of(figures, theirs, ours):
    """Time of theirs over time of ours, repetition by repetition."""
    pairs = zip(figures[theirs]["ms_per_token_of_repetitions"], figures[ours]["ms_per_token_of_repetitions"])
    return [a / b for a, b in pairs]


def print_ratios(figures, only=()):
    """Best mode of each group and of all over ours; returns them as plain data. `only`: what --modes ran, so that these
    are not the best of all that the peer has; its plain modes all ran."""
    run = f" of those run (--modes {', '.join(only)})" if only else ""
    print(f"\nthe peer's best modes{run}, their time over ours: mean of the repetitions' ratios and 95 % interval")
    ratios, of_run = [], " of those run" if only else ""
    for what, groups, ours in (("plain", [PLAIN], OURS[PLAIN]),
                               (f"with the draft model{of_run}", [DRAFT], OURS[DRAFT]),
                               (f"look-up{of_run}", [LOOKUP], OURS[LOOKUP]),
                               (of_run.strip() or "of all", GROUPS, OURS[DRAFT])):
        modes = [name for name, one in figures.items() if not one["ours"] and one["group"] in groups]
        if modes and ours in figures:
            # A mode that dropped out is no candidate: it was slower than one that stayed.
            most = max(len(figures[name]["ms_per_token_of_repetitions"]) for name in modes)
            theirs = min((name for name in modes if len(figures[name]["ms_per_token_of_repetitions"]) == most),
                         key=lambda name: figures[name]["ms_per_token"])
            found = ratio_of(figures, theirs, ours)
            shown = interval(found) if len(found) > 1 else f"{found[0]:.3f}"
            print(f"best {what}: {theirs} over {ours}: {shown}")
            ratios.append({"best": what, "theirs": theirs, "ours": ours, "ratios": found})
    return ratios


def warn_of_load(moment):
    load = os.getloadavg()[0]
    if load > CALM:
        print(f"load {load:.2f} {moment}: other work is running, so these figures are not for the record")


def save(path, tables):
    if path:
        path.write_text(json.dumps(tables, indent=1) + "\n")
