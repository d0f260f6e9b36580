"""How much of the oracle's speed does each stop rule reach? Tuned on every other prompt, shown on the others.

    python3 bench/oracle.py [--binary build/entrodraft] [--drafts draft,smallest,eagle3] [--costs FILE] [--prompts N]

For the demo target with each of three drafts, at temperatures 0 and 1: both halves of the prompts are recorded, `tune` searches
the settings of every rule on the first, and `simulate` replays the best of each on the second, beside the oracle. All of it
is counts times one costs file, by exact replays: a busy machine changes no figure. Without --costs a draft pass takes a
tenth of a target pass of one row, of which a further row takes 2 %, whatever the draft. Needs the standard library only.
"""

import itertools
import json
import pathlib
import tempfile

from runs import DEMO, Parser, aligned, comma_list, number, program, run

DRAFTS = {"draft": ["--draft", DEMO / "draft"], "smallest": ["--draft", DEMO / "smallest"], "eagle3": ["--head", DEMO / "eagle3"]}
TEMPERATURES = (0, 1)
COSTS = {"schema_version": 1, "t_draft_ms": 0.1, "t_target_ms": [round(1 + 0.02 * row, 2) for row in range(16)]}
OURS = "expected-gain"  # has nothing to tune
CONFIRMED = 2  # prompts of the runs that end a `tune`, of which nothing is shown here


class Pair:
    """The target with a draft at one temperature; its files lie in `work`."""

    def __init__(self, options, work, models, temperature):
        self.binary, self.work, self.costs = options.binary, work, ["--costs", options.costs]
        self.models = ["--target", DEMO / "target", *models, "--threads", 1]
        self.sampling = ["--temperature", temperature, "--max-new-tokens", options.max_new_tokens]
        lines = (DEMO / "prompts.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:options.prompts]
        self.tuned_on = self.recorded("tuned-on", lines[::2])
        self.shown_on = self.recorded("shown-on", lines[1::2])
        self.write("confirmed-on", lines[:CONFIRMED])

    def write(self, name, lines):
        path = self.work / f"{name}.jsonl"
        path.write_text("".join(lines), encoding="utf-8")
        return path

    def ours(self, command, *words):
        return run([self.binary, command, *words]).stdout

    def recorded(self, name, lines):
        recording = self.work / f"{name}.edr"
        self.ours("record", *self.models, *self.sampling, *self.costs, "--input", self.write(name, lines), "--output",
                  recording, "--quiet")
        return recording

    def best_settings(self):
        """Of each rule, on the prompts that it is tuned on."""
        found = self.work / "report.json"
        self.ours("tune", *self.models, *self.sampling, *self.costs, "--recording", self.tuned_on, "--input",
                  self.work / "confirmed-on.jsonl", "--output", self.work / "best.conf", "--report", found, "--repetitions", 1,
                  "--quiet")
        fastest_first = sorted(json.loads(found.read_text())["simulated"], key=lambda setting: setting["ms_per_token"])
        return {setting["rule"]: setting for setting in reversed(fastest_first)}

    def shown(self):
        """The oracle and the best settings, on the other prompts, by the name of their rule."""
        tuned = self.best_settings()
        rules = ",".join(["oracle", *(setting["setting"] for setting in tuned.values())])
        told = self.ours("simulate", "--recording", self.shown_on, "--rules", rules, *self.costs, "--json")
        shown = {setting["rule"]: setting for setting in json.loads(told)["settings"]}
        for rule, setting in tuned.items():
            shown[rule]["speedup_tuned_on"] = setting["speedup"]
        return shown


def over_others(shown, key):
    """Ours over the best of the others by that speed-up: on the prompts that it was tuned on, as one would choose it, or on those
    that are shown, which nobody knows before."""
    others = [setting for rule, setting in shown.items() if rule not in ("plain", "oracle", OURS)]
    return shown[OURS]["speedup"] / max(others, key=lambda setting: setting[key])["speedup"]


def table_of(results):
    """Rules down, the best first and ours at the end, drafts and temperatures across."""
    heads = [f"{name}, T {temperature}" for name, temperature in results]
    shares = {rule: [100 * shown[rule]["share_of_oracle_speedup"] for shown in results.values()]
              for rule in next(iter(results.values())) if rule not in ("plain", "oracle")}
    table = [["% of the oracle's speed-up", *heads]]
    for rule in sorted(shares, key=lambda rule: (rule != OURS, sum(shares[rule])), reverse=True):
        table.append([rule, *(f"{share:.1f}" for share in shares[rule])])
    table.append(["plain decoding", *(f"{100 / shown['oracle']['speedup']:.1f}" for shown in results.values())])
    table.append(["the oracle's speed-up", *(f"{shown['oracle']['speedup']:.3f}" for shown in results.values())])
    for what, key in ((f"{OURS} over the best tuned", "speedup_tuned_on"), ("over the best in hindsight", "speedup")):
        table.append([what, *(f"{over_others(shown, key):.4f}" for shown in results.values())])
    return aligned(table)


def settings_of(results):
    lines = [f"{name}, T {temperature}: " + "; ".join(setting["setting"] for rule, setting in shown.items()
                                                      if rule not in ("plain", "oracle", OURS))
             for (name, temperature), shown in results.items()]
    return "settings found on the first half of the prompts\n" + "\n".join(lines) + "\n"


def main():
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=program())
    parser.add_argument("--costs", type=pathlib.Path, help="of all drafts, as bench latency writes them [round numbers]")
    parser.add_argument("--prompts", type=number(4, 64, int), default=64)
    parser.add_argument("--max-new-tokens", type=number(1, kind=int), default=128)
    parser.add_argument("--drafts", type=comma_list(str, DRAFTS), default=list(DRAFTS), help=", ".join(DRAFTS) + " [all]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        if not options.costs:
            options.costs = scratch / "costs.json"
            options.costs.write_text(json.dumps(COSTS))
        results = {}
        for name, temperature in itertools.product(options.drafts, TEMPERATURES):
            work = scratch / str(len(results))
            work.mkdir()
            results[name, temperature] = Pair(options, work, DRAFTS[name], temperature).shown()
        costs = options.costs.read_text(encoding="utf-8").strip()
    print(f"{options.prompts} prompts of the demo, {options.max_new_tokens} new tokens, one half to tune on, the other shown; "
          f"costs of all drafts: {costs}\n\n{table_of(results)}\n{settings_of(results)}", end="")


if __name__ == "__main__":
    main()
