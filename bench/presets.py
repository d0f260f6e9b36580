"""What did published experiments say, and what comes out here? The figures of bench/presets.json beside ours.

    python3 bench/presets.py --list
    python3 bench/presets.py NAME [--alpha A] [--texts N] [--seed N]
    python3 bench/presets.py NAME --target DIR [--draft DIR]... --input FILE [--prompts N] [-- OPTIONS OF THE PROGRAM]

Without models a preset's stop rules are replayed (entrodraft simulate) over SYNTHETIC texts at the published costs, which
says what rules do with such an acceptance, not what any model does. With --target they run on these models (entrodraft bench
compare). Needs the standard library only.
"""

import argparse
import collections
import difflib
import json
import math
import pathlib
import shlex
import statistics
import sys
import tempfile
import time
import typing

import synthetic_texts
import theory
from runs import Parser, aligned, counted, program, run
from theory import expected_tokens, walltime_factor

DATA = pathlib.Path(__file__).resolve().parent / "presets.json"
USUAL_RULES = ("none", "constant:5", "heuristic:5", "expected-gain")  # beside every preset's own
CAP = 15  # of drafts, where a preset says nothing
REPLAYED_TOKENS = 20_000  # of all texts of a case
SAMPLES = 1_000  # texts, where the time of simulating them is the question
SOLVING_STEPS = 16
# The paper's alphas and costs; its draft's operations are 0.05 of the target's.
LEVIATHAN = theory.Plan([number / 10 for number in range(1, 10)], [0.01, 0.02, 0.05, 0.1, 0.2, 0.5], [0.05] * 6, 127)
REPETITIONS = 20  # of each pass that is timed: a cap of 100 tokens has 101 kinds of passes
TPU_V4_GB_PER_S = 1200  # Jouppi et al. 2023


# ---- data ----

def load():
    presets = {preset["name"]: preset for preset in json.loads(DATA.read_text(encoding="utf-8"))}
    for preset in presets.values():
        for case in preset.get("cases", []):
            if "shapes" in case:
                case.update(shape_costs(*case["shapes"]))
    return presets


def rows_of(case):
    """A case's rows, and what is always accepted beside them; the oracle comes from replays and runs."""
    rows = list(case["rows"])
    has = {row.get("rule", "").split(":")[0] for row in rows}
    for rule in USUAL_RULES:
        if rule.split(":")[0] not in has:
            rows.insert(0 if rule == "none" else len(rows), {"rule": rule})
    return rows


def name_of(row):
    parts = [row.get("rule"), row.get("label"), f"{row['acceptance']}, LOSSY" if "acceptance" in row else None,
             f"lenience {row['lenience']:g}" if row.get("lenience", 1) < 1 else None]
    return ", ".join(filter(None, parts))


def constant_of(row):
    """k of a constant rule, None of others."""
    rule, _, k = row.get("rule", "").partition(":")
    return int(k) if rule == "constant" else None


def cost_ratio(case):
    """c: t_draft over t_target."""
    return case.get("c") or (case["t_draft_ms"] / case["t_target_ms"] if "t_draft_ms" in case else None)


def published_ms(case, rule):
    return next((row.get("ms_per_token") for row in case["rows"] if row.get("rule", "").split(":")[0] == rule), None)


def over(base, value):
    return base / value if base and value else None


# ---- costs of shapes ----

class T5(typing.NamedTuple):
    """The decoder of a T5 v1.1."""

    layers: int
    hidden: int
    inner: int  # heads * d_kv
    intermediate: int
    vocab: int = 32128

    @property
    def weights_of_a_pass(self):
        """Self-attention, queries and outputs of cross-attention (its keys and values are made once a source), a gated MLP,
        and the head."""
        return self.layers * self.hidden * (6 * self.inner + 3 * self.intermediate) + self.hidden * self.vocab


T5_SHAPES = {"T5-small": T5(8, 512, 384, 1024), "T5-base": T5(12, 768, 768, 2048), "T5-large": T5(24, 1024, 1024, 2816),
             "T5-XXL": T5(24, 4096, 4096, 10240)}


def shape_costs(target, draft):
    """Fields of a case whose passes take as long as reading their weights."""
    t_target, t_draft = (2 * T5_SHAPES[name].weights_of_a_pass / (TPU_V4_GB_PER_S * 1e6) for name in (target, draft))
    return {"t_target_ms": t_target, "t_draft_ms": t_draft,
            "costs_origin": f"computed: bfloat16 weights that the decoders of {target} and {draft} read in a pass, at the "
                            f"{TPU_V4_GB_PER_S:,} GB/s of a TPU v4"}


# ---- the i.i.d. model of Leviathan et al. ----

def alpha_of_share(share, k):
    """The alpha at which k tokens, drafted one after another, have this share of accepted ones; accepted / drafted of a
    study is that share, and not alpha."""
    return synthetic_texts.bisected(lambda alpha: (expected_tokens(alpha, k) - 1) / k, share, 0.0, 1.0, 60)


# ---- the program ----

class Program:
    """Commands of entrodraft whose results come back as JSON; files of theirs lie in `work`."""

    def __init__(self, options, work):
        self.binary, self.work = options.binary or program(), work
        self.launcher, self.extra = shlex.split(options.launcher), options.extra
        self.n_files = 0

    def file(self, ending):
        self.n_files += 1
        return self.work / f"{self.n_files}.{ending}"

    def alone(self, *words):
        return run([self.binary, *words]).stdout

    def on_ranks(self, *words):
        """The JSON that a command writes to --output, of all ranks."""
        output = self.file("json")
        run([*self.launcher, self.binary, *words, *self.extra, "--output", output])
        return json.loads(output.read_text())

    def simulate(self, recording, rules, limits, costs):
        """Settings of the rules in their order, behind plain decoding."""
        output = self.file("json")
        self.alone("simulate", "--recording", recording, "--rules", ",".join(rules), *limits, *costs, "--output", output)
        settings = json.loads(output.read_text())["settings"]
        assert len(settings) == len(rules) + (rules != ["none"]) and settings[0]["rule"] == "plain", settings
        return settings

    def trace(self, recording, rule, limits, costs):
        """The rounds of a rule, by text."""
        output = self.file("jsonl")
        self.alone("simulate", "--recording", recording, "--rules", rule, *limits, *costs, "--trace", output)
        texts = collections.defaultdict(list)
        for line in output.read_text().splitlines():
            texts[json.loads(line)["id"]].append(json.loads(line))
        return list(texts.values())


def limits_of(row, setting):
    """Options of a row's rule beside its numbers; rows with the same ones share a command."""
    limits = ["--max-draft-tokens", str(row.get("max_draft_tokens") or setting.get("max_draft_tokens", CAP))]
    if "min_draft_tokens" in row:
        limits += ["--min-draft-tokens", str(row["min_draft_tokens"])]
    if row.get("drop_stop_token"):
        limits += ["--drop-stop-token"]
    return tuple(limits)


def acceptance_of(row):
    """Options of bench compare; rows with the same ones and the same limits share a run."""
    lenience = row.get("lenience", 1)
    return ("--acceptances", row.get("acceptance", "rejection") + (f":lenience={lenience}" if lenience < 1 else ""))


# ---- replays ----

class Replay:
    """A case over synthetic texts."""

    def __init__(self, program_, preset, case, options):
        self.program, self.preset, self.case, self.setting = program_, preset, case, preset["setting"]
        self.options, self.recording = options, program_.file("edr")
        new_tokens = self.setting.get("mean_new_tokens") or self.setting["max_new_tokens"]
        timed = preset["kind"] == "simulation-cost"
        n_texts = options.texts or (SAMPLES if timed else max(1, REPLAYED_TOKENS // new_tokens))
        self.texts = synthetic_texts.Texts(n_texts, new_tokens, self.setting.get("max_draft_tokens", CAP), options.seed)

    def report(self):
        alpha, origin = self.acceptance()
        self.write(synthetic_texts.shift_of(alpha))
        self.case["alpha_of_replay"] = alpha
        rows = [{**row, "ours": self.figures(row)} for row in rows_of(self.case)]
        rows.append({"label": "oracle", "ours": self.figures({"rule": "oracle"})})
        n = self.texts
        basis = (f"REPLAYED, its acceptance is SYNTHETIC: alpha {alpha:.3f} ({origin}), {counted(n.n_texts, 'text')} of "
                 f"{counted(n.new_tokens, 'token')}, seed {self.options.seed}")
        return {**self.case, "rows": rows, "basis": basis, "costs": costs_text(self.case)}

    def write(self, shift):
        self.texts.write(self.recording, shift, {"schema_version": 1, "t_draft_ms": 0, "t_target_ms": [1]})

    def acceptance(self):
        """(alpha, where it comes from)."""
        if self.options.alpha is not None:
            return self.options.alpha, "--alpha"
        if "alpha" in self.case:
            return self.case["alpha"], "published"
        if "matching_share" in self.case:
            return self.case["matching_share"], "published: about 2 tokens match for 1 that does not"
        return self.solved()

    def solved(self):
        """The acceptance at which the row of alpha_from comes out as published."""
        row = next(row for row in self.case["rows"] if row["rule"] == self.case["alpha_from"])
        field = "accepted_share" if "accepted_share" in row else "speedup"
        wanted = row.get(field) or over(published_ms(self.case, "none"), row["ms_per_token"])
        what = "accepted/drafted" if field == "accepted_share" else "speed-up over none"

        def replayed(alpha):
            self.write(synthetic_texts.shift_of(alpha))
            return self.figures(row).get(field, 0)
        alpha = synthetic_texts.bisected(replayed, wanted, 0.0, 1.0, SOLVING_STEPS)
        if not math.isclose(replayed(alpha), wanted, rel_tol=0.01):
            raise SystemExit(f"presets.py: {self.preset['name']}: no acceptance gives {row['rule']} its published {what}")
        return alpha, f"solved so that {row['rule']} has its published {what} of {wanted:.3f}"

    def figures(self, row):
        costs = self.case.get("simulation_costs") if "simulated_ms_per_token" in row else None
        costs = cost_options(costs or self.case)
        limits = limits_of(row, self.setting)
        began = time.perf_counter()
        setting = self.program.simulate(self.recording, [row["rule"]], limits, costs)[-1]
        took = time.perf_counter() - began
        ours = figures_of(setting, row)
        if "c" in self.case:  # of a ratio alone there are no milliseconds
            del ours["ms_per_token"]
        k = constant_of(row)
        if k:
            ours["iid_speedup"] = walltime_factor(self.case.get("alpha_of_replay", 0), k, cost_ratio(self.case))
        if self.preset["kind"] == "simulation-cost":
            ours["simulated_in_ms"] = 1e3 * took
        if self.preset.get("shows_lengths") and row["rule"] not in ("none", "oracle"):
            ours["drafted_of_rounds"] = drafted_of_rounds(self.program.trace(self.recording, row["rule"], limits, costs))
        if self.preset.get("shows_texts") and row["rule"] != "oracle":
            ours.update(self.times(row, setting, limits, costs))
        return ours

    def times(self, row, setting, limits, costs):
        """Spread over texts; a text decoded plainly takes what all of them take."""
        if row["rule"] == "none":
            texts = [setting["ms_per_token"] * self.texts.new_tokens] * self.texts.n_texts
        else:
            texts = [sum(each["draft_ms"] + each["target_ms"] for each in rounds)
                     for rounds in self.program.trace(self.recording, row["rule"], limits, costs)]
        return {"ms_of_a_text": spread_of(texts), "ms_per_round": sum(texts) / setting["rounds"]}


def can_be_replayed(preset, case, options):
    known = options.alpha is not None or any(name in case for name in ("alpha", "alpha_from", "matching_share"))
    return preset["kind"] in ("speed", "simulation-cost") and cost_ratio(case) and known and not case.get("cascade")


def cost_options(costs):
    """Of simulate; of a ratio alone a target pass takes 1 ms."""
    return ["--t-draft", str(costs.get("t_draft_ms") or costs["c"]), "--t-target", str(costs.get("t_target_ms", 1))]


def costs_text(case):
    if "c" in case:
        return f"c {case['c']:.4f} ({case['costs_origin']})"
    text = (f"t_draft {case['t_draft_ms']:.4g} ms, t_target {case['t_target_ms']:.4g} ms for any number of rows "
            f"({case['costs_origin']})")
    text += f"; c {cost_ratio(case):.4f}, published {case['published_c']:g}" if "published_c" in case else ""
    simulated = case.get("simulation_costs")
    return text + (f"; rows of its simulation at {simulated['t_draft_ms']:g} and {simulated['t_target_ms']:g} ms, as there"
                   if simulated else "")


def figures_of(setting, row):
    """Ours of a setting of simulate or bench compare; both count alike."""
    ours = {"ms_per_token": setting["ms_per_token"], "speedup": setting["speedup"],
            "tokens_per_pass": setting["new_tokens"] / setting["target_passes"]}
    if setting["drafted"]:
        ours["accepted_share"] = setting["accepted"] / setting["drafted"]
    k = 0 if row.get("rule") == "none" else constant_of(row)
    if k is not None and setting["rounds"]:
        ours["accepted_of_rows"] = setting["accepted"] / (setting["rounds"] * (k + 1))
    return ours


def drafted_of_rounds(texts):
    """Round by round of the first text."""
    return [len(each["drafted"]) for each in texts[0]]


def spread_of(values):
    """Mean, standard deviation and two quantiles of milliseconds."""
    values = sorted(values)
    return {"mean": statistics.fmean(values), "deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
            "p90": values[math.ceil(0.9 * len(values)) - 1], "p99": values[math.ceil(0.99 * len(values)) - 1]}


# ---- runs on models ----

class Runs:
    """A preset on models: its prompts, and its rules at one temperature after another."""

    def __init__(self, program_, preset, options):
        self.program, self.preset, self.setting, self.options = program_, preset, preset["setting"], options
        self.prompts, self.n_prompts, self.n_short = self.written_prompts()
        self.max_new_tokens = options.max_new_tokens or self.setting["max_new_tokens"]
        self.environment, self.costs = None, self.measured_costs()

    def written_prompts(self):
        """The file of prompts, cut to the preset's length and with its filters on each line; how many; how many are
        shorter than that."""
        if self.options.input:
            text = pathlib.Path(self.options.input).read_text(encoding="utf-8")
            lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            lines = [{"prompt": self.setting["prompt"]}]
        lines = [{"id": number, **line} for number, line in enumerate(lines[:self.options.prompts])]
        length = self.setting.get("prompt_tokens")
        lines = self.cut(lines, length) if length else lines
        filters = {name: self.setting[name] for name in ("no_repeat_ngram_size", "top_p") if name in self.setting}
        path = self.program.file("jsonl")
        path.write_text("".join(json.dumps({**line, **filters}) + "\n" for line in lines))
        return path, len(lines), sum(len(line["prompt_token_ids"]) < length for line in lines) if length else 0

    def cut(self, lines, length):
        """The first `length` tokens of each prompt."""
        texts = self.program.file("jsonl")
        wanting = [line for line in lines if "prompt_token_ids" not in line]
        if any("prompt" not in line for line in wanting):
            raise SystemExit(f"presets.py: {self.options.input}: {self.preset['name']} cuts prompts to "
                             f"{length} tokens, which conversations cannot be: give prompt or prompt_token_ids")
        texts.write_text("".join(json.dumps({"id": number, "text": line["prompt"]}) + "\n"
                                 for number, line in enumerate(wanting)))
        if wanting:
            told = self.program.alone("tokenize", "--model", self.options.target, "--input", texts, "--add-special-tokens")
            for line, encoded in zip(wanting, map(json.loads, told.splitlines())):
                line["prompt_token_ids"] = encoded["token_ids"]
                del line["prompt"]
        return [{**line, "prompt_token_ids": line["prompt_token_ids"][:length]} for line in lines]

    def models(self):
        words = ["--target", self.options.target]
        for draft in self.options.draft:
            words += ["--draft", draft]
        if "dtype" in self.setting and not any(word.startswith("--dtype") for word in self.program.extra):
            words += ["--dtype", self.setting["dtype"]]
        return words

    def drafters(self):
        """Options of drafters without a model."""
        return ["--drafters", self.setting["drafter"]] if "drafter" in self.setting else []

    def measured_costs(self):
        """The costs file of a pair of models, which predictions and expected-gain go by; a cascade is timed by itself."""
        if len(self.options.draft) != 1 or self.preset["kind"] == "alpha":
            return []
        path, cap = self.program.file("json"), self.setting.get("max_draft_tokens", CAP)
        result = self.program.on_ranks("bench", "latency", *self.models(), "--rows", str(cap + 1), "--repetitions",
                                       str(REPETITIONS))
        path.write_text(json.dumps(result))
        return ["--costs", path]

    def of_sampled_text(self, temperatures, acceptance):
        """Seed and acceptance, which have no effect, and are refused, where all text is greedy, unless it is lossy."""
        samples = any(temperature > 0 for temperature in temperatures)
        is_lossy = "lenience" in acceptance[1] or acceptance[1] in ("typical", "bild")
        return [*(acceptance if samples or is_lossy else ()), *(["--seed", str(self.options.seed)] if samples else [])]

    def compare(self, rules, limits, acceptance, temperature):
        """Settings of bench compare: plain decoding, those of the rules, and of a drafter's oracle."""
        words = ["bench", "compare", *self.models(), *self.drafters(), "--input", self.prompts, "--rules", ",".join(rules),
                 "--temperatures", str(temperature), "--max-new-tokens", str(self.max_new_tokens),
                 *self.of_sampled_text([temperature], acceptance), *limits, *self.costs, "--quiet"]
        result = self.program.on_ranks(*words)
        self.environment = result["environment"]
        return result["temperatures"][0]["settings"]

    def figures_at(self, temperature, rows):
        """Rows of one temperature with ours, those with the same limits in one run, and the oracle."""
        groups = collections.defaultdict(dict)
        for row in rows:
            if row["rule"] != "none":
                groups[limits_of(row, self.setting), acceptance_of(row)][row["rule"]] = None
        usual = (limits_of({}, self.setting), acceptance_of({}))
        for (limits, acceptance), rules in groups.items() or [(usual, {"none": None})]:
            settings = self.compare(list(rules), limits, acceptance, temperature)
            plain, *ran = [each for each in settings if not each["kind"]]
            rules.update(zip((rule for rule in rules if rule != "none"), ran), none=plain)
            groups[limits, acceptance] = rules
        result = []
        for row in rows:
            of_row = next(rules for asked, rules in groups.items() if row["rule"] == "none" or
                          asked == (limits_of(row, self.setting), acceptance_of(row)))
            result.append({**row, "ours": self.figures(of_row[row["rule"]], row)})
        oracle = next((each["oracle_speedup"] for rules in groups.values() for each in rules.values()
                       if each.get("oracle_speedup")), None)
        return result + ([{"label": "oracle (predicted from costs)", "ours": {"speedup": oracle}}] if oracle else [])

    def figures(self, setting, row):
        ours = figures_of(setting, row)
        known = setting.get("iid") or {}
        if known.get("alpha") is not None:
            ours["alpha"] = known["alpha"]
        levels = setting.get("levels") or []
        if levels:  # the smallest draft first, as published
            ours["level_shares"] = [each["accepted"] / each["drafted"] if each["drafted"] else None
                                    for each in reversed(levels)] + [ours.pop("accepted_share", None)]
        elif constant_of(row) and known.get("c") and row.get("lenience", 1) == 1 and "drafter" not in self.setting:
            ours["iid_speedup"] = walltime_factor(known["alpha"], constant_of(row), known["c"])
        if self.preset.get("shows_texts"):
            ours["ms_of_a_text"] = spread_of(setting["ms_of_texts"])
            ours["ms_per_round"] = sum(setting["ms_of_texts"]) / setting["rounds"]
        return ours

    def add_lengths(self, rows):
        """Rounds of the first prompt under each rule: greedy text is the same under all, so one recording has them."""
        recording, costs = self.program.file("edr"), ["--t-draft", "1", "--t-target", "1"]
        run([*self.program.launcher, self.program.binary, "record", *self.models(), *self.program.extra,
             "--input", self.prompts, "--output", recording, "--prompts", "1", "--max-new-tokens", str(self.max_new_tokens),
             "--max-draft-tokens", str(self.setting["max_draft_tokens"]), "--quiet"])
        for row in rows:
            if row.get("rule", "none") != "none":
                texts = self.program.trace(recording, row["rule"], limits_of(row, self.setting), costs)
                row["ours"]["drafted_of_rounds"] = drafted_of_rounds(texts)

    def report(self):
        """Cases with ours. One run knows the pair that ran and no other: where several cases have its temperature it is
        beside them by itself."""
        short = f", {self.n_short} of them shorter than the preset's" if self.n_short else ""
        basis = (f"ours MEASURED on these models, {counted(self.n_prompts, 'prompt')}, at most "
                 f"{counted(self.max_new_tokens, 'new token')}{short}")
        cases, runs = [], []
        for temperature in dict.fromkeys(case.get("temperature", 0) for case in self.preset["cases"]):
            here = [case for case in self.preset["cases"] if case.get("temperature", 0) == temperature]
            if len(here) == 1:
                cases.append({**here[0], "rows": self.rows(temperature, here), "basis": basis})
                continue
            cases += here
            asked = [{name: value for name, value in row.items() if name in ASKED} for row in self.rows_asked(here)]
            runs.append({"name": "ours", "temperature": temperature, "rows": self.figures_at(temperature, asked),
                         "basis": basis})
        return cases + runs

    def rows_asked(self, cases):
        """Each setting of these cases once; where nothing drafts, plain decoding alone."""
        drafts_nothing = all(row["rule"] == "none" for case in cases for row in case["rows"])
        rows = {}
        for case in cases:
            for row in case["rows"] if drafts_nothing else rows_of(case):
                rows.setdefault(name_of(row), row)
        return list(rows.values())

    def rows(self, temperature, cases):
        rows = self.figures_at(temperature, self.rows_asked(cases))
        if self.preset.get("shows_lengths"):
            self.add_lengths(rows)
        return rows

    def alphas(self):
        """Of every draft by itself, and of the tables of counts: drafted to the cap, so that every place of a text is verified
        once but for those behind drafts that are accepted whole, whatever was drafted there."""
        drafters = [f"draft{number}" for number in range(1, len(self.options.draft) + 1)]
        table = ["--draft-table", self.options.draft_table] if self.options.draft_table else []
        temperatures = sorted({case.get("temperature", 0) for case in self.preset["cases"]})
        result = self.program.on_ranks(
            "bench", "compare", *self.models(), "--drafters", ",".join(drafters + ["unigram", "bigram"] * bool(table)), *table,
            "--input", self.prompts, "--temperatures", ",".join(map(str, temperatures)), "--rules", f"constant:{CAP}",
            "--max-new-tokens", str(self.max_new_tokens), *self.of_sampled_text(temperatures, ("--acceptances", "rejection")),
            "--quiet")
        self.environment = result["environment"]
        return [alpha_figures(at["temperature"], setting) for at in result["temperatures"] for setting in at["settings"]
                if setting["setting"] != "plain" and not setting["kind"]]


def alpha_figures(temperature, setting):
    """Of a setting of bench compare."""
    verified = sum(each["verified"] for each in setting.get("by_position", []))
    known = setting["iid"] or {"alpha": 0.0, "interval_alpha": [0.0, 0.0]}
    return {"drafter": setting["setting"].split(",")[0], "temperature": temperature, "new_tokens": setting["new_tokens"],
            "texts": len(setting["ms_of_texts"]), "verified": verified, "accepted": setting["accepted"],
            "accepted_share": setting["accepted"] / verified if verified else 0.0,
            **{name: known[name] for name in ("alpha", "interval_alpha")}}


# What a row asks for; all else in it is published or ours.
ASKED = ("rule", "label", "max_draft_tokens", "min_draft_tokens", "drop_stop_token", "acceptance", "lenience")


# ---- tables ----

def field(name):
    return lambda case, row: row.get(name)


def ours(name):
    return lambda case, row: row.get("ours", {}).get(name)


def level(where, index):
    def value(case, row):
        shares = (row if where == "published" else row.get("ours", {})).get("level_shares") or []
        return shares[index] if index < len(shares) else None
    return value


def published_speedup(case, row):
    if "speedup" in row or row.get("rule") == "none":
        return row.get("speedup")
    return over(published_ms(case, "none"), row.get("ms_per_token"))


def published_over_heuristic(case, row):
    return over(published_ms(case, "heuristic"), row.get("ms_per_token"))


def our_speed_over_heuristic(case, row):
    """Of what is replayed at the measured costs alone: rows of a simulation have costs of their own."""
    base = next((each["ours"].get("speedup") for each in case["rows"] if each.get("rule", "").startswith("heuristic")
                 and "ours" in each), None)
    speedup = None if "simulated_ms_per_token" in row else row.get("ours", {}).get("speedup")
    return speedup / base if speedup and base else None


def share_alpha(case, row):
    del case
    k, share = constant_of(row), row.get("accepted_share")
    return alpha_of_share(share, k) if k and share is not None else None


def iid_of(alpha):
    def value(case, row):
        k, c, of_row = constant_of(row), cost_ratio(case), alpha(case, row)
        return walltime_factor(of_row, k, c) if k and c and of_row is not None else None
    return value


def iid_at_published_c(case, row):
    k, c = constant_of(row), case.get("published_c")
    return walltime_factor(row["alpha"], k, c) if k and c and "alpha" in row else None


def published_alpha_of(case, row):
    return row["alpha"] if "alpha" in row else share_alpha(case, row)


def tokens_at(k):
    return lambda case, row: expected_tokens(row["alpha"], k) if "alpha" in row else None


# Title, field of the JSON, decimals, value of (case, row): published ones first.
COLUMNS = [
    ("published ms/token", "published_ms_per_token", 2, field("ms_per_token")),
    ("its simulation", "published_simulated_ms_per_token", 2, field("simulated_ms_per_token")),
    ("published speed-up", "published_speedup", 3, published_speedup),
    ("over its +2/-1", "published_speedup_over_heuristic", 3, published_over_heuristic),
    ("expected there", "published_expected_speedup", 2, field("expected_speedup")),
    ("published accepted/drafted", "published_accepted_share", 2, field("accepted_share")),
    ("published of level 2", "published_accepted_share_of_level_2", 2, level("published", 0)),
    ("published of level 1", "published_accepted_share_of_level_1", 2, level("published", 1)),
    ("published alpha", "published_alpha", 2, field("alpha")),
    ("ms/token", "ms_per_token", 4, ours("ms_per_token")),
    ("speed-up", "speedup", 3, ours("speedup")),
    ("over +2/-1", "speedup_over_heuristic", 3, our_speed_over_heuristic),
    ("accepted/drafted", "accepted_share", 3, ours("accepted_share")),
    ("of level 2", "accepted_share_of_level_2", 3, level("ours", 0)),
    ("of level 1", "accepted_share_of_level_1", 3, level("ours", 1)),
    ("alpha", "alpha", 3, ours("alpha")),
    ("tokens/pass", "tokens_per_pass", 2, ours("tokens_per_pass")),
    ("ms/round", "ms_per_round", 4, ours("ms_per_round")),
    ("simulate ran ms", "simulated_in_ms", 1, ours("simulated_in_ms"))]
IID_COLUMNS = [
    ("published theoretical", "published_theoretical_speedup", 3, field("theoretical_speedup")),
    ("published accepted/drafted put in for alpha", "iid_speedup_of_published_share", 3, iid_of(field("accepted_share"))),
    ("alpha of that share", "iid_alpha_of_published_share", 3, share_alpha),
    ("speed-up at published alpha", "iid_speedup_of_published_alpha", 3, iid_of(published_alpha_of)),
    ("and at published c", "iid_speedup_of_published_alpha_and_c", 3, iid_at_published_c),
    ("speed-up at our alpha", "iid_speedup", 3, ours("iid_speedup")),
    ("tokens/pass at published alpha, k 3", "iid_tokens_per_pass_of_published_alpha_k_3", 2, tokens_at(3)),
    ("k 7", "iid_tokens_per_pass_of_published_alpha_k_7", 2, tokens_at(7))]


def table_of(case, columns, title, all_rows):
    """Columns without any value are left out, and unless `all_rows` rows without any."""
    rows = case["rows"]
    known = [(head, decimals, [value(case, row) for row in rows]) for head, _, decimals, value in columns]
    known = [each for each in known if any(value is not None for value in each[2])]
    if not known and not all_rows:
        return ""
    table = [[title, *(head for head, _, _ in known)]]
    for i, row in enumerate(rows):
        cells = ["-" if values[i] is None else f"{values[i]:.{decimals}f}" for _, decimals, values in known]
        if all_rows or set(cells) != {"-"}:
            table.append([name_of(row), *cells])
    return aligned(table)


def texts_table(case):
    table = [["ms a text", "mean", "deviation", "P90", "P99", "accepted/(k + 1)"]]
    for row in case["rows"]:
        spread = row.get("ours", {}).get("ms_of_a_text")
        if spread:
            share = row["ours"].get("accepted_of_rows")
            table.append([name_of(row), *(f"{spread[name]:.1f}" for name in ("mean", "deviation", "p90", "p99")),
                          "-" if share is None else f"{share:.3f}"])
    return "\n" + aligned(table) if len(table) > 1 else ""


def lengths_text(case):
    lines = [f"{name_of(row)}: {' '.join(map(str, row['ours']['drafted_of_rounds']))}\n" for row in case["rows"]
             if row.get("ours", {}).get("drafted_of_rounds")]
    return "\ndrafted tokens, round after round of the first text\n" + "".join(lines) if lines else ""


def case_text(case):
    text = f"\n{case['name']}, temperature {case.get('temperature', 0):g}\n{case.get('basis', 'published only')}\n"
    text += case["costs"] + "\n" if "costs" in case else ""
    text += table_of(case, COLUMNS, "setting", True)
    iid = table_of(case, IID_COLUMNS, "i.i.d. model", False)
    return text + ("\n" + iid if iid else "") + texts_table(case) + lengths_text(case)


def case_json(case):
    fields = {"case": case["name"], "temperature": case.get("temperature", 0)}
    fields.update({name: case[name] for name in ("basis", "costs") if name in case})
    if "alpha_of_replay" in case:
        fields["synthetic_alpha"] = case["alpha_of_replay"]
    fields["rows"] = []
    for row in case["rows"]:
        values = {name: value(case, row) for _, name, _, value in COLUMNS + IID_COLUMNS}
        values = {name: value for name, value in values.items() if value is not None}
        of_ours = {name: row.get("ours", {}).get(name) for name in ("accepted_of_rows", "drafted_of_rounds", "ms_of_a_text")}
        fields["rows"].append({"setting": name_of(row), "rule": row.get("rule", ""), **values,
                               **{name: value for name, value in of_ours.items() if value is not None}})
    return fields


def head_text(preset):
    text = f"{preset['name']}: {preset['about']}\n{preset['source']}\n"
    setting = preset.get("setting")
    if not setting:
        return text
    parts = [f"at most {counted(setting['max_new_tokens'], 'new token')}"
             + (f" after prompts of {setting['prompt_tokens']}" if "prompt_tokens" in setting else ""),
             f"drafts of at most {setting.get('max_draft_tokens', CAP)}"]
    parts += [f"no {setting['no_repeat_ngram_size']}-gram twice"] if "no_repeat_ngram_size" in setting else []
    parts += [f"top-p {setting['top_p']:g} where sampled"] if "top_p" in setting else []
    parts += [setting["dtype"]] if "dtype" in setting else []
    parts += [f"prompt \"{setting['prompt']}\""] if "prompt" in setting else []
    return text + ", ".join(parts) + "\n"


def published_text(preset):
    text = "".join(f"  {fact}\n" for fact in preset.get("facts", []))
    if "table" in preset:
        text += aligned([["  " + str(row[0]), *(cell if isinstance(cell, str) else f"{cell:.2f}" for cell in row[1:])]
                         for row in preset["table"]])
    return "\nPublished:\n" + text if text else ""


def lines_text(title, lines):
    return f"\n{title}\n" + "".join(f"  {line}\n" for line in lines) if lines else ""


def alpha_text(figures):
    table = [["drafter", "temperature", "alpha", "95 % interval", "accepted/verified", "verified"]]
    for each in figures:
        low, high = each["interval_alpha"]
        table.append([each["drafter"], f"{each['temperature']:g}", f"{each['alpha']:.4f}", f"{low:.4f} to {high:.4f}",
                      f"{each['accepted_share']:.4f}", str(each["verified"])])
    return aligned(table)


# ---- the command ----

def commands_of(preset, options):
    filled = {"{target}": options.target or "TARGET", "{draft}": (options.draft or ["DRAFT"])[0],
              "{input}": options.input or "PROMPTS"}
    commands = list(preset.get("commands", []))
    if preset["kind"] in ("speed", "alpha") and not any("presets.py" in command for command in commands):
        prompts = "" if "prompt" in preset["setting"] else " --input PROMPTS"
        commands.insert(0, f"python3 bench/presets.py {preset['name']} --target TARGET --draft DRAFT{prompts}")
    for placeholder, value in filled.items():
        commands = [command.replace(placeholder, value) for command in commands]
    return commands


def made(preset, options, work):
    """(text, JSON) of a preset."""
    program_, kind = Program(options, work), preset["kind"]
    result = {"command": "presets", **{name: preset[name] for name in ("kind", "source", "about")},
              "preset": preset["name"], **{name: preset[name] for name in ("facts", "table", "notes") if name in preset}}
    text = head_text(preset) + published_text(preset)
    if kind == "theory":
        text += "\n" + theory.text_of(LEVIATHAN)
        result["theory"] = theory.result_of(LEVIATHAN)
    cases, figures = preset.get("cases", []), []
    if options.target and kind in ("speed", "alpha"):
        runs = Runs(program_, preset, options)
        cases, figures = (cases, runs.alphas()) if kind == "alpha" else (runs.report(), [])
        result.update(environment=runs.environment, prompts=runs.n_prompts, max_new_tokens=runs.max_new_tokens)
        text = ", ".join(f"{name} {value}" for name, value in runs.environment.items()) + "\n" + text
    elif cases:
        cases = [Replay(program_, preset, case, options).report() if can_be_replayed(preset, case, options) else case
                 for case in cases]
    text += "".join(map(case_text, cases))
    if figures:
        text += (f"\nours, MEASURED on these models, {counted(result['prompts'], 'prompt')}, at most "
                 f"{counted(result['max_new_tokens'], 'new token')}\n" + alpha_text(figures))
        result["ours"] = figures
    commands = [] if options.target and kind != "study" else commands_of(preset, options)
    text += lines_text("Notes:", preset.get("notes")) + lines_text("Commands that measure ours:", commands)
    if cases:
        result["cases"] = [case_json(case) for case in cases]
    if commands:
        result["commands"] = commands
    return text, result


def parse(words):
    parser = Parser(prog="presets.py", description=__doc__.splitlines()[0], epilog="What is behind -- goes to the "
                    "program's commands on models, such as -- --threads 8 --device cuda --draft-placement sharded.")
    parser.add_argument("name", nargs="?", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="all presets, a line each")
    parser.add_argument("--binary", help="the program [build/entrodraft, or the installed one]")
    parser.add_argument("--seed", type=int, default=None, help="of texts, synthetic or sampled [0]")
    parser.add_argument("--output", metavar="FILE", type=pathlib.Path, help="results as JSON")
    replays = parser.add_argument_group("without models: a replay with synthetic acceptance")
    replays.add_argument("--alpha", type=share, help="mean acceptance, 0 to 1 [the preset's]")
    replays.add_argument("--texts", type=positive, metavar="N", help=f"[as many as make {REPLAYED_TOKENS} tokens]")
    models = parser.add_argument_group("on models, with the preset's rules, lengths and filters")
    models.add_argument("--target", metavar="DIR")
    models.add_argument("--draft", metavar="DIR", action="append", default=[], help="of a cascade twice, the larger first")
    models.add_argument("--input", metavar="FILE", help="JSON lines of prompts, as for generate [the preset's prompt]")
    models.add_argument("--prompts", type=positive, metavar="N", help="only the first N of them [all]")
    models.add_argument("--max-new-tokens", type=positive, metavar="N", help="[the preset's]")
    models.add_argument("--draft-table", metavar="FILE", help="of presets of drafters: unigram and bigram too")
    models.add_argument("--launcher", default="", metavar="WORDS", help="before the program: 'mpirun -n 8 --bind-to none'")
    at = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:at])
    options.extra = words[at + 1:]
    return parser, options


def share(text):
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 1")
    return value


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


MODEL_OPTIONS = ("draft", "input", "prompts", "max_new_tokens", "draft_table", "launcher", "extra")


def given(options, names):
    """Which of these options are given, as they are written; "--" of what goes to the program."""
    return ["--" if name == "extra" else "--" + name.replace("_", "-") for name in names if getattr(options, name)
            or getattr(options, name) == 0]


def check(parser, options, preset):
    """Options that would have no effect are refused."""
    kind, name = preset["kind"], preset["name"]
    runs = bool(options.target) and kind in ("speed", "alpha")
    replays = any(can_be_replayed(preset, case, options) for case in preset.get("cases", []))
    refused = []
    if kind == "study":
        refused = given(options, ("seed", "alpha", "texts") + MODEL_OPTIONS[2:])
    elif not runs:
        refused = given(options, ("target",) * (kind not in ("speed", "alpha")) + MODEL_OPTIONS)
        refused += [] if replays else given(options, ("alpha", "texts", "seed"))
    else:
        refused = given(options, ("alpha", "texts") + (("draft_table",) if kind == "speed" else ()))
    if refused:
        parser.error(f"{refused[0]} has no effect on {name} {'with' if options.target else 'without'} --target")
    if runs:
        check_models(parser, options, preset)


def check_models(parser, options, preset):
    name, setting = preset["name"], preset["setting"]
    if not options.input and "prompt" not in setting:
        parser.error(f"--input FILE is missing: the prompts to run {name} on")
    if preset["kind"] == "alpha":
        if not options.draft and not options.draft_table:
            parser.error(f"--draft DIR or --draft-table FILE is missing: what {name} measures")
        return
    rules = [row["rule"] for case in preset["cases"] for row in case["rows"]]
    wanted = 0 if "drafter" in setting or set(rules) == {"none"} else \
        2 if any(case.get("cascade") for case in preset["cases"]) else 1
    if len(options.draft) != wanted:
        parser.error(f"{name} takes --draft DIR {('not at all', 'once', 'twice, the larger model first')[wanted]}")


def main(words):
    parser, options = parse(words)
    presets = load()
    if options.list:
        width = max(map(len, presets))
        print("\n".join(f"{name.ljust(width)}  {preset['about']}" for name, preset in presets.items()))
        return
    if options.name not in presets:
        near = difflib.get_close_matches(options.name or "", presets, 1)
        parser.error(f"unknown preset {options.name!r}" + (f"; did you mean {near[0]}?" if near else "; --list names all")
                     if options.name else "which preset? Name one, or give --list")
    preset = presets[options.name]
    check(parser, options, preset)
    options.seed = options.seed or 0
    with tempfile.TemporaryDirectory(prefix="entrodraft-presets-") as work:
        text, result = made(preset, options, pathlib.Path(work))
    if options.output:
        options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main(sys.argv[1:])
