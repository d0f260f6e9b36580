// Presets: their data, what is refused in it, their replays, and the command from outside.
#include "entrodraft/launch/bench/preset_replay.h"
#include "entrodraft/launch/bench/preset_report.h"
#include "entrodraft/launch/bench/presets.h"
#include "entrodraft/launch/options/preset_options.h"

#include "entrodraft/launch/failure.h"
#include "launch/command_line.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include <stdexcept>

namespace {

using namespace entrodraft;
using namespace entrodraft::launch;
using test::ScratchFile;
using test::Strings;
using test::operator+;

template <typename Call> std::string refusal(Call call) {
    try {
        call();
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "accepted";
}

void expect_part(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

TEST(Presets, AreAllThere) {
    const std::set<std::string> wanted = {
        "thesis-default",    "thesis-6.7b",        "thesis-length-1", "thesis-length-2",
        "thesis-entropy",    "thesis-final-token", "thesis-num-k",    "thesis-candidate-length",
        "thesis-overhead",   "thesis-latency",     "thesis-sim-cost", "leviathan-theory",
        "leviathan-table-2", "leviathan-table-3",  "gpt2-baselines",  "gpt2-table-1",
        "gpt2-table-2",      "gpt2-table-3",       "gpt2-table-4",    "gpt2-table-5",
        "gpt2-table-6",      "gpt2-table-7",       "chen-xsum",       "chen-humaneval",
        "chen-k-sweep",      "chen-gpt2",          "notes-lookup",    "notes-lenience",
        "notes-llama",       "task-40b-70b"};
    std::set<std::string> have;
    for (const Preset& preset : presets())
        have.insert(preset.name);
    EXPECT_EQ(have, wanted);
    EXPECT_EQ(&preset_named("chen-gpt2"), &*std::find_if(presets().begin(), presets().end(), [](const Preset& preset) {
        return preset.name == "chen-gpt2";
    }));
    expect_part(refusal([] { preset_named("chen-gpt"); }), "did you mean chen-gpt2?");
}

TEST(Presets, HoldThePublishedFigures) {
    const PresetCase& thesis = preset_named("thesis-default").cases.at(0);
    EXPECT_EQ(thesis.rows.at(1).ms_per_token, 23.11);
    EXPECT_NEAR(published_speedup(thesis, thesis.rows.at(1)).value(), 33.84 / 23.11, 1e-12);
    const auto rule = rule_of(thesis.rows.at(3), preset_named("thesis-default").setting).value();
    EXPECT_EQ(rule.kind, spec::StopRuleKind::moving_average);
    EXPECT_EQ(rule.factor, 0.5);
    EXPECT_EQ(rule.window, 7);
    EXPECT_EQ(rule.max_tokens, 100);
    EXPECT_EQ(preset_named("leviathan-table-2").cases.size(), 12u);
    EXPECT_EQ(preset_named("gpt2-table-6").cases.at(0).rows.at(1).level_shares, (std::vector<double>{0.59, 0.48}));
}

TEST(Presets, RefuseDataThatDoesNotHoldTogether) {
    const std::string head = R"([{"name": "x", "source": "s", "about": "a", )";
    const std::string row = R"("rows": [{"rule": "constant:3", "speedup": 2}])";
    const auto why = [](const std::string& text) { return refusal([&] { parse_presets(text); }); };
    EXPECT_EQ(why(head + R"("kind": "speed", "cases": [{"name": "c", )" + row + "}]}]"), "accepted");
    expect_part(why("{"), "not a JSON list");
    expect_part(why(R"([{"kind": "speed"}])"), "field name is missing");
    expect_part(why(head + R"("kind": "fast"}])"), "preset x: kind fast");
    expect_part(why(head + R"("kind": "theory", "colour": 1}])"), "preset x: field colour is not known");
    expect_part(why(head + R"("kind": "speed"}])"), "do not go together");
    expect_part(why(head + R"("kind": "speed", "cases": [{"name": "c", "rows": [{"rule": "constant:x"}]}]}])"),
                "--rules constant:x");
    expect_part(why(head + R"("kind": "speed", "cases": [{"name": "c", "rows": [{"rule": "none", "alpha": 2}]}]}])"),
                "case c, row 0: alpha");
    expect_part(why(head + R"("kind": "speed", "cases": [{"name": "c", "t_draft_ms": 1, )" + row + "}]}]"),
                "t_draft_ms and t_target_ms");
    expect_part(why(head + R"("kind": "speed", "cases": [{"name": "c", "c": 0.1, )" + row + "}]}]"), "costs_origin");
    expect_part(why(head + R"("kind": "speed", "cases": [{"name": "c", "alpha_from": "static:1", )" + row + "}]}]"),
                "no row has the rule of alpha_from");
    expect_part(why(head + R"("kind": "alpha", "cases": [{"name": "c", )" + row + "}]}]"), "name a drafter");
    const std::string one = R"({"name": "x", "source": "s", "about": "a", "kind": "theory"})";
    expect_part(why("[" + one + "," + one + "]"), "two of this name");
}

TEST(Presets, AlphaOfAShareIsTheOneThatGivesIt) {
    for (const double alpha : {0.0, 0.3, 0.9, 1.0})
        for (const int k : {1, 2, 7})
            EXPECT_NEAR(alpha_of_share((spec::expected_tokens(alpha, k) - 1) / k, k).value(), alpha, 1e-9);
    EXPECT_FALSE(alpha_of_share(1.2, 3));
    EXPECT_FALSE(alpha_of_share(0.5, 0));
}

const ComparedRow& row_named(const ComparedCase& compared, const std::string& name) {
    const auto found = std::find_if(compared.rows.begin(), compared.rows.end(),
                                    [&](const ComparedRow& row) { return row.name == name; });
    if (found == compared.rows.end()) throw std::runtime_error("no row " + name);
    return *found;
}

TEST(PresetReplay, TakesTheAcceptanceAtWhichTheNamedRowComesOutAsPublished) {
    const auto thesis = replay_preset(preset_named("thesis-default"), {});
    ASSERT_EQ(thesis.size(), 1u);
    EXPECT_NEAR(row_named(thesis[0], "heuristic:5").ours.speedup.value(), 33.84 / 24.85, 0.005);
    for (const char* usual : {"none", "constant:5", "expected-gain", "oracle"})
        EXPECT_TRUE(row_named(thesis[0], usual).ours.ms_per_token) << usual;
    EXPECT_NEAR(row_named(thesis[0], "none").ours.ms_per_token.value(), 34.15, 1e-9);
    const double oracle = row_named(thesis[0], "oracle").ours.speedup.value();
    for (const ComparedRow& row : thesis[0].rows)
        EXPECT_LE(row.ours.speedup.value(), oracle + 1e-9) << row.name;
    const auto table = replay_preset(preset_named("gpt2-table-1"), {});
    EXPECT_NEAR(row_named(table[0], "constant:2").ours.accepted_share.value(), 0.48, 0.005);
}

TEST(PresetReplay, FollowsTheClosedFormWhereAlphaIsPublished) {
    for (const ComparedCase& one : replay_preset(preset_named("leviathan-table-2"), {})) {
        const ComparedRow& row = one.rows.at(1);
        EXPECT_EQ(one.alpha, one.preset_case.alpha);
        EXPECT_NEAR(row.ours.speedup.value() / row.ours.iid_speedup.value(), 1, 0.04) << one.preset_case.name;
        EXPECT_FALSE(row.ours.ms_per_token) << "milliseconds out of c alone";
    }
}

TEST(PresetReplay, EveryPresetSaysSomethingWithoutModels) {
    for (const Preset& preset : presets()) {
        const auto cases = replay_preset(preset, {{}, can_be_replayed(preset, {}) ? 20 : 0, 0});
        const PresetReport report = report_of(preset, cases, preset.commands);
        expect_part(report.text, preset.name + ": " + preset.about);
        EXPECT_EQ(report.json["preset"], preset.name);
        EXPECT_TRUE(!cases.empty() || !preset.commands.empty() || report.json.contains("theory")) << preset.name;
        const bool is_synthetic = report.text.find("SYNTHETIC") != std::string::npos;
        EXPECT_EQ(is_synthetic, can_be_replayed(preset, {})) << preset.name;
    }
}

TEST(PresetReplay, ShowsLengthsAndTextsWhereThePresetDoes) {
    const PresetReplayPlan few = {{}, 20, 0};
    const auto lengths = replay_preset(preset_named("thesis-candidate-length"), few);
    int tokens = 0;
    for (const int length : row_named(lengths[0], "static:2.25").ours.lengths) {
        EXPECT_LE(length, 10);
        tokens += length;
    }
    EXPECT_GT(tokens, 20);
    const auto sweep = replay_preset(preset_named("chen-k-sweep"), few);
    EXPECT_EQ(row_named(sweep[0], "constant:3").ours.ms_of_texts.size(), 20u);
}

TEST(PresetReport, ARunStandsBesideSeveralPublishedModelsByItself) {
    std::vector<ComparedCase> cases;
    for (const PresetCase& one : preset_named("leviathan-table-2").cases) {
        ComparedCase& ran = cases.emplace_back();
        ran.preset_case = one;
        ran.basis = "ours MEASURED";
        for (const PublishedRow& row : with_usual_rows(one)) {
            ran.rows.push_back({name_of(row), row, {}});
            ran.rows.back().ours.speedup = one.temperature == 0 ? 1.234 : 2.345;
        }
    }
    const PresetReport report = report_of(preset_named("leviathan-table-2"), cases, {});
    int n_ours = 0;
    for (const test::Json& one : report.json["cases"]) {
        const bool is_ours = one["case"] == "ours";
        n_ours += is_ours ? 1 : 0;
        EXPECT_EQ(one.contains("basis"), is_ours);
        std::set<std::string> settings;
        for (const test::Json& row : one["rows"]) {
            EXPECT_TRUE(settings.insert(row["setting"].get<std::string>()).second) << "each once";
            EXPECT_EQ(row.contains("speedup"), is_ours) << row;
            EXPECT_EQ(row.contains("published_speedup"), !is_ours) << row;
        }
    }
    EXPECT_EQ(n_ours, 2) << "one for each temperature";
    EXPECT_EQ(report.json["cases"].size(), cases.size() + 2);
    // Replays are of each case itself, and a single case keeps ours beside what was published.
    for (ComparedCase& one : cases)
        one.alpha = 0.5;
    EXPECT_EQ(report_of(preset_named("leviathan-table-2"), cases, {}).json["cases"].size(), cases.size());
    const ComparedCase alone = {preset_named("chen-k-sweep").cases.front(), "ours MEASURED", "", {}, {}};
    EXPECT_EQ(report_of(preset_named("chen-k-sweep"), {alone}, {}).json["cases"].size(), 1U);
}

// ---- from outside ----

TEST(BenchPreset, ListsAndNames) {
    const test::Ended list = test::run({"bench", "preset", "--list"});
    EXPECT_EQ(list.code, 0);
    for (const Preset& preset : presets())
        expect_part(list.out, preset.name);
    expect_part(test::run({"bench", "preset", "leviathan-theory"}).out, "Best k, of 0 to 127 (Figure 3)");
    const test::Ended json = test::run({"bench", "preset", "gpt2-table-3", "--json", "--texts", "20"});
    EXPECT_EQ(json.code, 0) << json.err;
    EXPECT_EQ(test::Json::parse(json.out)["cases"][0]["rows"][0]["published_ms_per_token"], 9.5);
}

TEST(BenchPreset, RefusesWhatHasNoEffect) {
    const auto refused = [](const Strings& arguments, const std::string& part) {
        const test::Ended ended = test::run(Strings{"bench", "preset"} + arguments);
        EXPECT_EQ(ended.code, 2) << ended.err;
        expect_part(ended.err, part);
    };
    const Strings target = {"--target", test::kTarget};
    refused({}, "which preset?");
    refused({"thesis-defaul"}, "did you mean thesis-default?");
    refused({"thesis-default", "--list"}, "--name has no effect with --list");
    refused({"thesis-default", "--prompts", "3"}, "--prompts has no effect without --target");
    refused({"leviathan-table-3", "--alpha", "0.5"}, "--alpha has no effect");
    refused({"leviathan-theory", "--seed", "1"}, "--seed has no effect: the preset leviathan-theory is not replayed");
    refused(Strings{"thesis-latency", "--seed", "2"} + target, "--seed has no effect");
    refused(Strings{"thesis-default", "--alpha", "0.5"} + target, "--alpha has no effect on runs");
    refused(Strings{"leviathan-theory"} + target, "needs no models");
    refused(Strings{"thesis-default"} + target, "--input FILE is missing");
    refused(Strings{"thesis-default", "--input", "x"} + target, "needs --draft DIR, once");
    refused(Strings{"gpt2-table-5", "--input", "x", "--draft", "d"} + target, "needs --draft DIR twice");
    refused(Strings{"notes-lookup", "--input", "x", "--draft", "d"} + target, "--draft has no effect");
    refused(Strings{"thesis-latency", "--prompts", "2"} + target, "--prompts has no effect");
}

TEST(BenchPreset, RunsOnModels) {
    const ScratchFile prompts("{\"prompt\": \"The ferry left\"}\n{\"prompt\": \"Marta\"}\n"), out("");
    const Strings common = {"--target",     test::kTarget,      "--threads", "1",     "--input",
                            prompts.path(), "--max-new-tokens", "12",        "--json"};
    const Strings draft = {"--draft", test::kDraft};
    const test::Ended thesis = test::run(Strings{"bench", "preset", "thesis-final-token"} + common + draft);
    ASSERT_EQ(thesis.code, 0) << thesis.err;
    const test::Json rows = test::Json::parse(thesis.out)["cases"][0]["rows"];
    for (const test::Json& row : rows)
        EXPECT_GT(row["speedup"].get<double>(), 0) << row["setting"];
    EXPECT_EQ(rows.size(), 4u + 4 + 1) << "its own, the usual ones, the oracle";
    const test::Ended lenient = test::run(Strings{"bench", "preset", "notes-lenience"} + common + draft);
    ASSERT_EQ(lenient.code, 0) << lenient.err;
    const test::Json alone = test::Json::parse(lenient.out)["cases"][0]["rows"];
    const auto share = [&](const std::string& name) {
        for (const test::Json& row : alone)
            if (row["setting"] == name) return row["accepted_share"].get<double>();
        ADD_FAILURE() << name << " in " << lenient.out;
        return 0.0;
    };
    EXPECT_LE(share("constant:5"), share("constant:5, lenience 0.1"));
    const test::Ended lookup = test::run(Strings{"bench", "preset", "notes-lookup"} + common);
    EXPECT_EQ(lookup.code, 0) << lookup.err;
    const test::Ended cascade = test::run(Strings{"bench", "preset", "gpt2-table-5"} + common + draft + draft);
    ASSERT_EQ(cascade.code, 0) << cascade.err;
    EXPECT_TRUE(test::Json::parse(cascade.out)["cases"][0]["rows"][1].contains("accepted_share_of_level_2"));
    const test::Ended alpha = test::run(Strings{"bench", "preset", "leviathan-table-3"} + common + draft);
    ASSERT_EQ(alpha.code, 0) << alpha.err;
    EXPECT_EQ(test::Json::parse(alpha.out)["ours"].size(), 2u);
    const test::Ended plain = test::run(Strings{"bench", "preset", "gpt2-baselines"} + common);
    EXPECT_EQ(plain.code, 0) << plain.err;
}

} // namespace
