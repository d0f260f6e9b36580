#!/usr/bin/env python3
"""The page of bench/explore.py counts as `entrodraft simulate` does: its own functions, in node or a headless Chromium, whichever
there are, over recordings of the demo models.

    tests/bench/explore_test.py --binary build/entrodraft
"""

import contextlib
import html
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

BINARY = pathlib.Path(sys.argv[sys.argv.index("--binary") + 1]).resolve()
DEMO = ROOT / "model/demo"
NODE = shutil.which("node") or shutil.which("nodejs")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ENTROPY_RULES = ("static:0..6..0.75,moving-average:0.2..2..0.6:1..7..3,cumulative:0..30..6:1..7..3,svip:0.1..0.9..0.2,"
                 "adaedl:0.05..0.3..0.05")
RULES = (ENTROPY_RULES + ",confidence:0..1..0.2,disco:0..1..0.25:1..3..2:0..1..1:0..1..1:0..0.2..0.2,"
         "constant:1..9..4,heuristic:1..9..4,heuristic:5:persistent,adaptive:1..9..4,oracle")
COSTS = {"schema_version": 1, "t_draft_ms": 0.11, "t_first_draft_ms": 0.17, "t_round_ms": 0.03,
         "t_target_ms": [1, 1.05, None, None, 1.3, 1.31] + [None] * 9 + [2.9]}
COUNTS = ["drafted", "accepted", "target_passes", "draft_passes", "new_tokens"]
REPLAYED = """
async function replayed(settings) {
    const recording = await embedded();
    return settings.map((setting) => {
        const {counts} = replay(recording, setting);
        return {...counts, passes_of_rows: Array.from(counts.passes_of_rows, (passes) => passes ?? 0),
                ...timesOf(counts, recording.head.costs[setting.draft])};
    });
}
"""
IN_NODE = """
const page = require("fs").readFileSync(process.argv[1], "utf8");
const inside = (id) => page.split(`id="${id}">`)[1].split("</script>")[0];
globalThis.byIdOfTest = inside("recording");
const code = inside("code").replace('byId("recording").textContent', "byIdOfTest");
new Function("settings", "done", code + REPLAYED + "replayed(settings).then(done);")(
    JSON.parse(process.argv[2]), (results) => console.log(JSON.stringify(results)));
"""


def record(directory, name, *options, prompts=6, new_tokens=48):
    (directory / "costs.json").write_text(json.dumps(COSTS))
    lines = (DEMO / "prompts.jsonl").read_text().splitlines()[:prompts]
    (directory / "prompts.jsonl").write_text("".join(line + "\n" for line in lines))
    subprocess.run([BINARY, "record", "--target", DEMO / "target", "--input", directory / "prompts.jsonl", "--output", directory / name,
                    "--max-new-tokens", str(new_tokens), "--quiet", *map(str, options),
                    *["--costs", directory / "costs.json"] * (options.count("--draft") + options.count("--head"))], check=True)
    return directory / name


def page_of(recording, *options):
    import explore

    page = recording.with_suffix(".html")
    with contextlib.redirect_stderr(io.StringIO()):
        ended = explore.main([str(recording), "--output", str(page), *map(str, options)])
    if ended:
        raise AssertionError(ended)
    return page


def simulated(recording, *options):
    done = subprocess.run([BINARY, "simulate", recording, "--json", *map(str, options)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["settings"]


def setting_of(simulated_setting, names, max_tokens):
    """As explore.js has it. `names`: each rule's parameters."""
    rule, parameters = simulated_setting["rule"], simulated_setting.get("parameters") or {}
    kind = rule if rule in ("plain", "oracle") else "rule"
    return {"kind": kind, "rule": rule, "draft": simulated_setting["draft"],
            "values": [float(parameters.get(name, 0)) for name in names[rule]] if kind == "rule" else [],
            "maxTokens": simulated_setting.get("max_draft_tokens") or max_tokens,
            "minTokens": simulated_setting.get("min_draft_tokens") or 1,
            "dropStopToken": bool(simulated_setting.get("drop_stop_token"))}


def in_node(page, settings):
    script = "const REPLAYED = " + json.dumps(REPLAYED) + ";\n" + IN_NODE
    done = subprocess.run([NODE, "-e", script, str(page), json.dumps(settings)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def dom_of(page):
    """What Chromium has made of it once its scripts have run."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
                               "--virtual-time-budget=20000", "--dump-dom", page.as_uri()],
                              check=True, capture_output=True, text=True, timeout=200)
    return done.stdout


def with_script(page, script):
    copy = page.with_name("copy.html")
    copy.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
    return copy


def in_chromium(page, settings):
    dom = dom_of(with_script(page, REPLAYED + f"""replayed({json.dumps(settings)}).then((results) =>
        document.body.append(element("pre", {{id: "results"}}, JSON.stringify(results))));"""))
    return json.loads(html.unescape(re.search(r'<pre[^>]* id="results"[^>]*>(.*?)</pre>', dom, re.S)[1]))


ENGINES = [(name, run) for name, found, run in (("node", NODE, in_node), ("chromium", CHROMIUM, in_chromium)) if found]


class Explore(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.work.cleanup)
        cls.directory = pathlib.Path(cls.work.name)
        cls.drafts = record(cls.directory, "drafts.edr", "--draft", DEMO / "draft", "--draft", DEMO / "smallest")

    def compare(self, recording, settings, max_tokens=15, page=None, engines=ENGINES[:1]):
        page = page or page_of(recording)
        for name, run in engines:
            results = run(page, [setting_of(each, self.parameters, max_tokens) for each in settings])
            for simulated_setting, result in zip(settings, results, strict=True):
                with self.subTest(engine=name, setting=simulated_setting["setting"]):
                    self.assertEqual({each: result[each] for each in COUNTS}, {each: simulated_setting[each] for each in COUNTS})
                    self.assertEqual(result["passes_of_rows"], simulated_setting["passes_of_rows"])
                    for own, theirs in (("msPerToken", "ms_per_token"), ("speedup", "speedup")):
                        self.assertAlmostEqual(result[own] / simulated_setting[theirs], 1, places=9)

    @property
    def parameters(self):
        """The keys of each rule, from explore.js."""
        source = (ROOT / "bench/explore.js").read_text()
        script = (source.replace("if (typeof document", "process.stdout.write(JSON.stringify(RULES)); if (typeof document"))
        if not hasattr(type(self), "rules"):
            if NODE:
                done = subprocess.run([NODE, "-e", script], check=True, capture_output=True, text=True)
                type(self).rules = json.loads(done.stdout)
            else:
                page = self.directory / "rules.html"
                page.write_text(f"<body><script>{source.split('// ---- the view ----')[0]}\n"
                                "document.title = JSON.stringify(RULES);</script></body>")
                type(self).rules = json.loads(html.unescape(re.search(r"<title>(.*?)</title>", dom_of(page), re.S)[1]))
        return {name: [each["key"] for each in rule["parameters"]] for name, rule in self.rules.items()}

    def test_defaults_are_the_program_s(self):
        settings = simulated(self.drafts, "--rules", "all", "--draft", 1)
        known = self.parameters
        by_program = {each["rule"]: each["parameters"] for each in settings if each["rule"] not in ("plain", "expected-gain")}
        by_page = {rule: {each["key"]: each["value"] for each in self.rules[rule]["parameters"] if not each.get("isSwitch")}
                   for rule in known}
        self.assertEqual(by_page, by_program)

    def test_counts_of_two_drafts_are_those_of_simulate(self):
        self.compare(self.drafts, simulated(self.drafts, "--rules", RULES), engines=ENGINES)

    def test_caps_and_dropped_tokens_count_as_in_simulate(self):
        page = page_of(self.drafts)
        for most, least, more in ((4, 1, "constant:4,heuristic:1:persistent,adaptive:2"), (15, 3, "confidence:0.5,constant:2"),
                                  (1, 1, "heuristic:1,adaptive:1")):
            caps = ["--max-draft-tokens", most, "--min-draft-tokens", least]
            self.compare(self.drafts, simulated(self.drafts, "--rules", f"{ENTROPY_RULES},{more},oracle", *caps), most, page)
        dropped = simulated(self.drafts, "--rules", ENTROPY_RULES + ",confidence:0.5,disco", "--drop-stop-token", "--min-draft-tokens", 2)
        self.compare(self.drafts, dropped, page=page)

    def test_sampled_texts_and_long_caps(self):
        recording = record(self.directory, "sampled.edr", "--draft", DEMO / "draft", "--temperature", 1, "--max-draft-tokens", 15,
                           "--stop", ".", prompts=12, new_tokens=64)
        self.compare(recording, simulated(recording, "--rules", RULES))

    def test_drafted_ends_of_text_and_full_contexts(self):
        from recording import read_recording

        for name, more in (("ends.edr", []), ("ignored.edr", ["--ignore-eos"])):
            recording = record(self.directory, name, "--draft", DEMO / "draft", "--temperature", 1, "--logit-bias", "0:14",
                               "--max-context", 70, *more, prompts=12, new_tokens=60)
            texts = read_recording(recording).texts
            self.assertTrue(any(0 in text.of_draft(0, "token") for text in texts))
            self.assertTrue(any(text.fields["prompt_tokens"] + text.fields["new_tokens"] == 70 for text in texts))
            self.compare(recording, simulated(recording, "--rules", RULES))

    def test_heads(self):
        for head in ("eagle3", "medusa"):
            recording = record(self.directory, f"{head}.edr", "--head", DEMO / head)
            self.compare(recording, simulated(recording, "--rules", RULES))

    def test_other_costs_and_one_draft(self):
        costs = self.directory / "other.json"
        costs.write_text(json.dumps({"schema_version": 1, "t_draft_ms": 1, "t_target_ms": [7, *[None] * 14, 30]}))
        page = page_of(self.drafts, "--costs", costs, "--draft", 2)
        settings = simulated(self.drafts, "--rules", "all,oracle", "--costs", costs, "--draft", 2)
        self.compare(self.drafts, [{**each, "draft": 0} for each in settings if each["rule"] != "expected-gain"], page=page)

    def assert_shows(self, dom, rule, oracle):
        rows = [[re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<t[hd][^>]*>.*?</t[hd]>", row)]
                for row in re.findall(r'<tr>(<th scope="row">.*?)</tr>', dom, re.S)]
        shown = {row[0]: row[1:3] + row[4:6] + row[7:] for row in rows}
        for label, each in (("this rule", rule), ("oracle", oracle)):
            self.assertEqual(shown[label], [f"{each['speedup']:.3f}", f"{each['ms_per_token']:.4f}",
                                            *(str(each[name]) for name in ("drafted", "accepted", "target_passes", "draft_passes"))])
        self.assertEqual(len(re.findall(r'data-round="', dom)), len(re.findall(r'class="round"', dom)))  # of the text, and of its curve
        self.assertIn('<p id="failure" class="warning" role="alert"></p>', dom)

    @unittest.skipUnless(CHROMIUM, "needs chromium")
    def test_the_page_shows_the_figures_of_simulate(self):
        dom = dom_of(page_of(self.drafts))
        self.assert_shows(dom, *simulated(self.drafts, "--rules", "moving-average,oracle", "--draft", 1)[1:])

    @unittest.skipUnless(CHROMIUM, "needs chromium")
    def test_controls_change_what_is_shown(self):
        dom = dom_of(with_script(page_of(self.drafts), """
            const set = (control, value) => {
                control.value = value;
                control.dispatchEvent(new Event("input", {bubbles: true}));
            };
            const whenReady = () => {
                if (byId("figures").rows.length === 0) return setTimeout(whenReady, 50);
                const before = byId("parameter-0").value;
                set(byId("draft"), 1);
                set(byId("rule"), "static");
                set(byId("parameter-0"), 3.5);
                set(byId("max-tokens"), 6);
                set(byId("text"), 4);
                set(byId("place"), 7);
                byId("tokens-shown").open = byId("sweep-shown").open = true;
                const controls = ["parameter-0", "place"].map((id) => byId(id).value);
                document.title = [before, ...controls, byId("rounds").querySelectorAll(".chosen").length].join();
            };
            whenReady();"""))
        self.assertIn("<title>0.3,3.5,7,1</title>", dom)
        settings = simulated(self.drafts, "--rules", "static:3.5,oracle", "--draft", 2, "--max-draft-tokens", 6)
        self.assert_shows(dom, *settings[1:])
        command = html.unescape(re.search(r'<code id="command">(.*?)</code>', dom)[1])
        self.assertTrue(command.endswith("--rules static:threshold=3.5,oracle --max-draft-tokens 6 --draft 2"), command)
        self.assertEqual(len(re.findall("<tr>", re.search(r'<table id="tokens".*?</table>', dom, re.S)[0])), 1 + 48)
        self.assertGreater(len(re.findall("<tr>", re.search(r'<table id="speedups".*?</table>', dom, re.S)[0])), 30)

    def test_a_page_of_some_texts_says_so(self):
        self.assertIn("The first 2 of 6 texts", page_of(self.drafts, "--texts", 2).read_text())
        self.assertNotIn("The first", page_of(self.drafts, "--texts", 6).read_text())

    def test_refusals(self):
        import explore

        narrow = self.directory / "narrow.json"
        narrow.write_text(json.dumps({**COSTS, "t_target_ms": [1, 2]}))
        for options, words in ((["--costs", narrow], "passes of up to 2 rows"), (["--costs", self.drafts], "not JSON"),
                               (["--draft", "3"], "the recording has 2 drafts"), (["--texts", "0"], "must be a whole number"),
                               (["--output", self.drafts], "the same file")):
            complaint = io.StringIO()
            with contextlib.redirect_stderr(complaint):
                try:
                    ended = explore.main([str(self.drafts), "--output", str(self.directory / "refused.html"), *map(str, options)])
                except SystemExit as end:
                    ended = end.code
            self.assertTrue(ended)
            self.assertIn(words, f"{ended} {complaint.getvalue()}")
            self.assertFalse((self.directory / "refused.html").exists())


if __name__ == "__main__":
    try:
        import numpy  # noqa: F401
    except ImportError:
        print("skipped: needs numpy for", sys.executable)
        sys.exit(77)
    if not ENGINES:
        print("skipped: needs node or chromium to run the page")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
