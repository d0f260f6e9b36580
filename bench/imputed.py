"""How far is the thesis's simulator (`simulate --method imputed`, Kluser 2024) from the exact replay, and from what it chooses?

    python3 bench/imputed.py RECORDING [--imputed-from 5,15] [--t-draft 7 --t-target 34] [--rules RULE,RULE]

Replays the thesis's settings of a recording exactly and imputed, at the same costs (7 and 34 ms, those of its simulations). Of each
rule: milliseconds a token by both methods over the settings, and what the setting that the approximation finds best costs exactly,
over the best there is. Needs the standard library only.
"""

import json

from runs import Parser, aligned, comma_list, number, program, run

RULES = "static:0.5..7..0.25,moving-average:0.4..1.2..0.1:1..7..1,cumulative:2..50..4:1..7..1,constant:1..15..1,heuristic,expected-gain"


def settings_of(options, *method):
    """{rule: {setting as --rules takes it: ms a token}} of every rule."""
    told = run([options.binary, "simulate", "--recording", options.recording, "--rules", options.rules, "--t-draft", options.t_draft,
                "--t-target", options.t_target, *method, "--json"]).stdout
    found = {}
    for setting in json.loads(told)["settings"]:
        if setting["rule"] != "plain":
            found.setdefault(setting["rule"], {})[setting["setting"]] = setting["ms_per_token"]
    return found


def row_of(rule, exact, imputed):
    """A rule's figures; settings are in the same order in both."""
    over = sorted(imputed[setting] / exact[setting] for setting in exact)
    best, chosen = (min(of, key=of.get) for of in (exact, imputed))
    return [rule, f"{len(exact)}", f"{over[0]:.3f} to {over[-1]:.3f}", f"{over[len(over) // 2]:.3f}", best, f"{exact[best]:.3f}",
            chosen, f"{imputed[chosen]:.3f}", f"{exact[chosen]:.3f}", f"{exact[chosen] / exact[best]:.3f}"]


def main():
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("recording")
    parser.add_argument("--binary", default=program())
    parser.add_argument("--imputed-from", type=comma_list(int), default=[5, 15], help="tokens that rounds of the recorded run draft")
    parser.add_argument("--t-draft", type=number(0), default=7, help="ms")
    parser.add_argument("--t-target", type=number(0), default=34, help="ms")
    parser.add_argument("--rules", default=RULES, help="as simulate takes them")
    options = parser.parse_args()
    exact = settings_of(options)
    for drafted in options.imputed_from:
        imputed = settings_of(options, "--method", "imputed", "--imputed-from", drafted)
        table = [["rule", "settings", "imputed/exact", "median", "best, exact", "ms/token", "best, imputed", "ms/token", "exact",
                  "over the best"], *(row_of(rule, exact[rule], imputed[rule]) for rule in exact)]
        print(f"imputed from drafts of {drafted}\n{aligned(table)}")


if __name__ == "__main__":
    main()
