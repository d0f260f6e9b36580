// record, simulate and tune from outside: what they write agrees with real runs, survives being cut off, and what
// cannot be is refused in one line.
#include "tests/launch/command_line.h"

#include "launch/cmd/tuning.h"
#include "spec/replay/recording.h"
#include "spec/replay/recording_block.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>

namespace replay_test {

using namespace test;
using namespace entrodraft;

const char* const kInput = R"({"id": "a", "prompt_token_ids": [1, 2, 3]}
{"id": "b", "prompt_token_ids": []}
{"id": "c", "prompt_token_ids": [40, 12, 7, 9], "max_new_tokens": 20}
{"id": "d", "prompt_token_ids": [5, 6], "seed": 11}
{"id": "e", "prompt_token_ids": [100, 101]}
)";
const Strings kPair = {"--target", kTarget, "--draft", kDraft, "--threads", "1"};

// A path that does not exist yet, gone at the end.
class NewFile {
  public:
    NewFile() : file_("") { std::filesystem::remove(file_.path()); }
    std::string path() const { return file_.path(); }
    std::string text() const { return file_.text(); }

  private:
    ScratchFile file_;
};

Strings record(const std::string& input, const std::string& output, const Strings& more = {}) {
    return Strings{"record"} + kPair +
           Strings{"--input", input, "--output", output, "--max-new-tokens", "32", "--quiet"} + more;
}

std::string costs_file() {
    return R"({"schema_version": 1, "t_draft_ms": 0.1, "t_target_ms": [1, 1.02, 1.04, 1.06, 1.1, 1.15, 1.2, 1.3, 1.4,
              1.5, 1.6, 1.7, 1.8, 1.9, 2, 2.1]})";
}

TEST(Replay, SimulatedCountsAreThoseOfGenerateRuns) {
    const ScratchFile input(kInput), costs(costs_file());
    for (const Strings& sampling : {Strings{}, Strings{"--temperature", "0.8", "--top-k", "50", "--seed", "5"}}) {
        const NewFile recording;
        const Ended recorded = run(record(input.path(), recording.path(), Strings{"--costs", costs.path()} + sampling));
        EXPECT_EQ(recorded.code, 3) << recorded.err; // line b
        for (const Strings& rule : {Strings{"static:1.5", "static:threshold=1.5"},
                                    Strings{"moving-average:0.6:3", "moving-average:factor=0.6:window=3"},
                                    Strings{"heuristic:4", "heuristic:tokens=4"},
                                    Strings{"expected-gain", "expected-gain", "--costs", costs.path()}}) {
            SCOPED_TRACE(rule[0]);
            const Ended simulated = run({"simulate", "--recording", recording.path(), "--rules", rule[0], "--json"});
            ASSERT_EQ(simulated.code, 0) << simulated.err;
            const Json setting = Json::parse(simulated.out)["settings"][1];
            const Ended real = run(
                Strings{"generate"} + kPair +
                Strings{"--input", input.path(), "--max-new-tokens", "32", "--acceptance", "gumbel", "--stop-rule"} +
                Strings(rule.begin() + 1, rule.end()) + sampling);
            expect_counts_of(real, setting);
        }
    }
}

TEST(Replay, SimulatedTreesCountWhatGenerateCounts) {
    const ScratchFile input(kInput), costs(wide_costs_file());
    for (const Strings& sampling : {Strings{}, Strings{"--temperature", "0.8", "--top-k", "50", "--seed", "5"}}) {
        const NewFile recording;
        const Strings trees = {"--tree", "expected-gain:4:4", "--tree", "eagle2:3:3", "--tree", "2,2,1"};
        const Ended recorded =
            run(record(input.path(), recording.path(), Strings{"--costs", costs.path()} + trees + sampling));
        EXPECT_EQ(recorded.code, 3) << recorded.err; // line b
        for (const std::string shape : {"expected-gain:4:4", "expected-gain:3:2", "eagle2:3:2", "2,1"}) {
            SCOPED_TRACE(shape);
            const Ended simulated =
                run({"simulate", "--recording", recording.path(), "--rules", "none", "--tree", shape, "--json"});
            ASSERT_EQ(simulated.code, 0) << simulated.err;
            const Json setting = Json::parse(simulated.out)["settings"][1];
            EXPECT_EQ(setting["tree"], shape);
            const bool weighs = shape.starts_with("expected");
            const Ended real = run(Strings{"generate"} + kPair +
                                   Strings{"--input", input.path(), "--max-new-tokens", "32", "--tree", shape} +
                                   (weighs ? Strings{"--costs", costs.path()} : Strings{}) + sampling);
            ASSERT_EQ(real.code, 3) << real.err;
            expect_counts_of(real, setting);
        }
        const Ended bounded =
            run({"simulate", "--recording", recording.path(), "--rules", "oracle", "--tree", "2,1", "--json"});
        for (const Json& setting : Json::parse(bounded.out)["settings"])
            EXPECT_EQ(setting.contains("share_of_oracle_speedup"),
                      setting["rule"] == "plain" || setting["rule"] == "oracle");
        const Strings simulate = {"simulate", "--recording", recording.path(), "--rules", "none", "--tree"};
        EXPECT_NE(run(simulate + Strings{"4,4,2"}).err.find("not recorded"), std::string::npos);
        EXPECT_NE(run(simulate + Strings{"eagle2:3:8"}).err.find("the recording holds 4"), std::string::npos);
        const ScratchFile narrow(costs_file());
        EXPECT_NE(run(simulate + Strings{"eagle2:3:2", "--costs", narrow.path()}).err.find("passes of 64 rows"),
                  std::string::npos);
    }
}

TEST(Replay, TuneTriesTreesBesideRules) {
    const ScratchFile input(R"({"prompt_token_ids": [1, 2, 3]}
{"prompt_token_ids": [40, 12, 7, 9]}
{"prompt_token_ids": [5, 6]})"),
        costs(wide_costs_file());
    const NewFile best, report;
    const Ended tuned = run(Strings{"tune"} + kPair +
                            Strings{"--input", input.path(), "--costs", costs.path(), "--max-new-tokens", "16",
                                    "--repetitions", "1", "--quiet", "--tree", "expected-gain:3:4", "--tree", "2,1",
                                    "--output", best.path(), "--report", report.path()});
    ASSERT_EQ(tuned.code, 0) << tuned.err;
    const Json json = Json::parse(report.text());
    std::set<std::string> tried, confirmed;
    for (const Json& each : json["simulated"])
        if (each.contains("tree")) {
            EXPECT_TRUE(tried.insert(each["tree"]).second) << each["tree"];
        }
    for (const Json& each : json["confirmed"])
        if (each.contains("tree")) confirmed.insert(each["tree"]);
    EXPECT_TRUE(tried.contains("expected-gain:2:2") && tried.contains("expected-gain:3:4") && tried.contains("2,1"));
    EXPECT_EQ(confirmed.size(), 2U) << "the best of each kind";
}

// What models and sampling decide of a recording.
Json essence_of(const std::string& file) {
    Json essence = Json::array();
    for (const spec::RecordedLine& line : spec::read_recording(file).lines) {
        if (const auto* error = std::get_if<spec::RecordedError>(&line)) {
            essence.push_back({error->id, error->error});
            continue;
        }
        const auto& text = std::get<spec::TextRecord>(line);
        const auto& draft = text.drafts.at(0);
        essence.push_back({text.id, text.token, draft.token, draft.astray_token, draft.rank});
    }
    return essence;
}

TEST(Replay, RecordsTheTextsOfPromptsAndMismatchingTokens) {
    const ScratchFile input("{\"prompt\": \"The ferry left\"}\n"), costs(costs_file());
    const NewFile recording;
    ASSERT_EQ(run(record(input.path(), recording.path(), {"--costs", costs.path()})).code, 0);
    const std::string bytes = recording.text();
    std::size_t head = 0, length = 0;
    const spec::BlockReader first(bytes, head), block(std::string_view(bytes).substr(head), length);
    const auto& texts = block.json["token_texts"];
    std::vector<std::int32_t> prompt, token, drafted;
    block.read("prompt_token", prompt);
    block.read("token", token);
    block.read("draft.0.token", drafted);
    std::string said;
    for (const std::int32_t each : prompt)
        said += texts[std::to_string(each)].get<std::string>();
    EXPECT_EQ(said, "The ferry left");
    for (std::size_t i = 0; i < drafted.size(); ++i)
        EXPECT_TRUE(drafted[i] == token[i] || texts.contains(std::to_string(drafted[i]))) << i;
}

TEST(Replay, RecordSaysThatOptionsOfSamplingHadNoEffect) {
    const ScratchFile input(R"({"prompt_token_ids": [1, 2, 3]})"), costs(costs_file());
    const NewFile recording;
    const Ended recorded = run(Strings{"record"} + kPair +
                               Strings{"--input", input.path(), "--output", recording.path(), "--max-new-tokens", "4",
                                       "--costs", costs.path(), "--top-p", "0.5"});
    EXPECT_NE(recorded.err.find("warning: --top-p has no effect at temperature 0, and no line has another"),
              std::string::npos)
        << recorded.err;
}

TEST(Replay, RecordsTheSameOnSeveralRanks) {
    const ScratchFile input(kInput), costs(costs_file());
    const NewFile one, two;
    EXPECT_EQ(run(record(input.path(), one.path(), {"--costs", costs.path()})).code, 3);
    const Ended ended = run_ranks(2, record(input.path(), two.path(), {"--costs", costs.path()}));
    EXPECT_EQ(ended.code, 3) << ended.err;
    EXPECT_EQ(essence_of(one.path()), essence_of(two.path()));
    EXPECT_EQ(essence_of(one.path()).size(), 5U);
}

TEST(Replay, ResumesARecordingThatWasCutOff) {
    const ScratchFile input(kInput), costs(costs_file());
    const NewFile whole;
    const Strings options = {"--costs", costs.path()};
    ASSERT_EQ(run(record(input.path(), whole.path(), options)).code, 3);
    const std::string bytes = whole.text();
    for (const double share : {0.0, 0.3, 0.6, 0.99, 1.0}) {
        SCOPED_TRACE(share);
        const ScratchFile part(bytes.substr(0, static_cast<std::size_t>(share * static_cast<double>(bytes.size()))));
        if (share > 0) {
            const Ended refused = run(record(input.path(), part.path(), options));
            EXPECT_EQ(refused.code, 2);
            EXPECT_NE(refused.err.find("--resume"), std::string::npos) << refused.err;
        }
        const Ended resumed = run(record(input.path(), part.path(), options + Strings{"--resume"}));
        EXPECT_EQ(resumed.code, 3) << resumed.err;
        EXPECT_EQ(essence_of(part.path()), essence_of(whole.path()));
    }
    const ScratchFile other(bytes.substr(0, bytes.size() / 2));
    EXPECT_NE(run(record(input.path(), other.path(), options + Strings{"--resume", "--temperature", "1"}))
                  .err.find("begun with other options: acceptance was 'greedy', and is 'gumbel' now"),
              std::string::npos);
    EXPECT_NE(run(record(input.path(), other.path(), options + Strings{"--resume", "--no-repeat-ngram-size", "4"}))
                  .err.find("options: requests.no_repeat_ngram_size was 0, and is 4 now"),
              std::string::npos);
    EXPECT_NE(run(record(input.path(), other.path(), options + Strings{"--resume", "--ignore-eos"}))
                  .err.find("options: ignore_eos of id \"a\" was false, and is true now"),
              std::string::npos);
    EXPECT_NE(run(Strings{"record"} + kPair + options +
                  Strings{"--input", input.path(), "--output", other.path(), "--resume", "--max-new-tokens", "4"})
                  .err.find("options: max_new_tokens of id \"a\" was 32, and is 4 now"),
              std::string::npos);
    const NewFile shorter;
    ASSERT_EQ(run(record(input.path(), shorter.path(), options + Strings{"--max-context", "64"})).code, 3);
    const std::string apart = run({"simulate", whole.path(), shorter.path()}).err;
    EXPECT_NE(apart.find("cannot be one: drafts[0].context of " + whole.path() + " is 256, of " + shorter.path() +
                         " 64; simulate them apart"),
              std::string::npos)
        << apart;
    std::string damaged = bytes; // the length of a block in the midst
    damaged[bytes.find("EDR1", 100) + 6] = 'x';
    const ScratchFile kept(damaged);
    EXPECT_NE(run(record(input.path(), kept.path(), options + Strings{"--resume"})).err.find("whole blocks follow"),
              std::string::npos);
    EXPECT_EQ(kept.text(), damaged) << "nothing is cut off";
    const ScratchFile reordered(R"({"id": "z", "prompt_token_ids": [1]})");
    EXPECT_NE(run(record(reordered.path(), other.path(), options + Strings{"--resume"})).err.find("is not that of"),
              std::string::npos);
}

TEST(Replay, TuneWritesWhatGenerateReads) {
    const ScratchFile input(R"({"prompt_token_ids": [1, 2, 3]}
{"prompt_token_ids": [40, 12, 7, 9]}
{"prompt_token_ids": [5, 6]}
{"prompt_token_ids": [100, 101]})"),
        costs(costs_file());
    const NewFile config, report;
    const Ended tuned =
        run(Strings{"tune"} + kPair +
            Strings{"--input", input.path(), "--output", config.path(), "--report", report.path(), "--costs",
                    costs.path(), "--max-new-tokens", "24", "--repetitions", "1", "--quiet"});
    ASSERT_EQ(tuned.code, 0) << tuned.err;
    const Json json = Json::parse(report.text());
    EXPECT_EQ(json["confirmed"].size(), spec::all_stop_rules().size());
    for (const Json& rule : json["confirmed"])
        for (const char* interval : {"interval_ms_per_token", "interval_speedup"})
            EXPECT_GT(rule[interval][0].get<double>(), 0) << interval;
    EXPECT_EQ(json["machine"]["disturbance"].is_string(), config.text().find("not to be trusted") != std::string::npos);
    const bool is_faster = json["winner"]["speedup"].get<double>() > 1;
    EXPECT_NE(is_faster, tuned.out.find("nothing beats plain decoding here") != std::string::npos) << tuned.out;
    EXPECT_NE(is_faster, config.text().find("# nothing beats plain decoding here") != std::string::npos);
    EXPECT_NE(config.text().find("stop-rule = " + json["winner"]["rule"].get<std::string>()), std::string::npos);
    const Ended generated = run(Strings{"generate"} + kPair +
                                Strings{"--config", config.path(), "--input", input.path(), "--max-new-tokens", "8"});
    EXPECT_EQ(generated.code, 0) << generated.err;
}

TEST(Replay, TimelinesShowEveryStepOfEveryRank) {
    const NewFile timeline;
    const Strings options = Strings{"generate"} + kPair + Strings{"--prompt", "once",       "--max-new-tokens", "12",
                                                                  "--quiet",  "--timeline", timeline.path()};
    ASSERT_EQ(run_ranks(2, options).code, 0);
    std::map<int, std::set<std::string>> steps; // of each rank
    std::map<int, double> until;
    const Json json = Json::parse(timeline.text());
    for (const Json& event : json["traceEvents"]) {
        if (event["ph"] != "X") continue;
        const int rank = event["tid"];
        steps[rank].insert(event["name"].get<std::string>());
        EXPECT_GE(event["ts"].get<double>(), until[rank] - 0.002) << "steps of a rank follow each other";
        EXPECT_GE(event["dur"].get<double>(), 0);
        until[rank] = event["ts"].get<double>() + event["dur"].get<double>();
        EXPECT_LT(event["args"]["round"].get<int>(), 100);
    }
    for (const char* step : {"draft", "broadcast", "prefill", "score", "gather", "verify"})
        for (int rank = 0; rank < 2; ++rank)
            EXPECT_TRUE(steps[rank].contains(step)) << rank << ' ' << step;
    EXPECT_EQ(steps.size(), 2U);
    EXPECT_NE(run(options).err.find("--timeline"), std::string::npos) << "a file that holds something is refused";
}

// The settings of a simulation whose name has `part` in it.
std::vector<Json> settings_named(const Ended& simulated, const std::string& part) {
    EXPECT_EQ(simulated.code, 0) << simulated.err;
    std::vector<Json> found;
    const Json json = simulated.code == 0 ? Json::parse(simulated.out) : Json::object();
    if (json.contains("settings"))
        for (const Json& setting : json["settings"])
            if (setting["setting"].get<std::string>().find(part) != std::string::npos) found.push_back(setting);
    return found;
}

TEST(Replay, EveryRuleOfTheGridTakesTheOptionsOfRules) {
    const ScratchFile input(kInput), costs(costs_file());
    const NewFile recording;
    ASSERT_EQ(run(record(input.path(), recording.path(), {"--costs", costs.path()})).code, 3);
    const Strings simulate = {"simulate", "--recording", recording.path(), "--rules", "grid,oracle", "--json"};
    const Ended grid = run(simulate + Strings{"--min-draft-tokens", "4", "--drop-stop-token"});
    for (const Json& setting : settings_named(grid, ",")) {
        EXPECT_EQ(setting["min_draft_tokens"], 4) << setting["setting"];
        const spec::StopRuleType* rule = spec::find_stop_rule(setting["rule"].get<std::string>());
        ASSERT_NE(rule, nullptr);
        const bool drops = rule->may_drop();
        EXPECT_EQ(setting.value("drop_stop_token", false), drops) << setting["setting"];
    }
    // The oracle bounds the rules as they are: under their cap.
    const Ended capped = run(simulate + Strings{"--max-draft-tokens", "2"});
    ASSERT_EQ(settings_named(capped, "oracle").size(), 1U);
    EXPECT_EQ(settings_named(capped, "oracle")[0]["passes_of_rows"].size(), 4U) << "up to 3 rows";
    for (const Json& setting : settings_named(capped, "")) {
        EXPECT_TRUE(setting.contains("share_of_oracle_speedup"));
        EXPECT_LE(setting["share_of_oracle_speedup"].get<double>(), 1 + 1e-9) << setting["setting"];
    }
    // Where caps differ, under the widest.
    const Ended wider = run(Strings{"simulate", "--recording", recording.path(), "--json", "--rules",
                                    "heuristic:5:persistent,constant:15,oracle"});
    EXPECT_LE(settings_named(wider, "persistent")[0]["share_of_oracle_speedup"].get<double>(), 1 + 1e-9);
    // Where drafts never pay it drafts nothing, and there is no gain to have a share of.
    const Ended dear = run(simulate + Strings{"--t-draft", "9", "--t-target", "1"});
    EXPECT_EQ(settings_named(dear, "oracle")[0]["drafted"], 0);
    EXPECT_EQ(settings_named(dear, "oracle")[0]["speedup"], 1);
    EXPECT_FALSE(settings_named(dear, "oracle")[0].contains("share_of_oracle_gain"));
    const Ended table = run({"simulate", "--recording", recording.path()});
    EXPECT_NE(table.out.find("share of oracle"), std::string::npos);
    EXPECT_EQ(table.out.find("of its gain"), std::string::npos);
    // It waits for each verification, so rules that draft ahead may be faster.
    const Strings dedicated = {"--draft-placement", "dedicated"};
    const Ended refused = run(simulate + dedicated);
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.err.find("--rules oracle: it drafts nothing ahead"), std::string::npos) << refused.err;
    const Ended ahead = run(Strings{"simulate", "--recording", recording.path(), "--json"} + dedicated);
    EXPECT_FALSE(settings_named(ahead, "static").empty()) << ahead.err;
    EXPECT_TRUE(settings_named(ahead, "oracle").empty());
    EXPECT_EQ(settings_named(run(simulate + dedicated + Strings{"--draft-ahead", "0"}), "oracle").size(), 1U);
}

TEST(Replay, AnImputedSimulationSaysThatItIsOne) {
    const ScratchFile input(kInput), costs(costs_file());
    const NewFile recording;
    ASSERT_EQ(run(record(input.path(), recording.path(), {"--costs", costs.path()})).code, 3);
    const Strings simulate = {"simulate", "--recording", recording.path(), "--json", "--rules"};
    const Strings imputed = {"--method", "imputed", "--imputed-from", "3"};
    const Ended of_three = run(simulate + Strings{"constant:3"} + imputed),
                exact = run(simulate + Strings{"constant:3"});
    ASSERT_EQ(settings_named(of_three, "constant").size(), 1U);
    EXPECT_EQ(Json::parse(of_three.out)["imputed_from"], 3);
    EXPECT_FALSE(Json::parse(exact.out).contains("imputed_from"));
    EXPECT_EQ(Json::parse(of_three.out)["settings"], Json::parse(exact.out)["settings"]) << "the run's own length";
    EXPECT_NE(run({"simulate", "--recording", recording.path(), "--method", "imputed"}).out.find("an approximation"),
              std::string::npos);
    const auto refusal = [&](const Strings& words) { return run(simulate + Strings{"static"} + words).err; };
    EXPECT_NE(refusal({"--imputed-from", "3"}).find("no effect without --method imputed"), std::string::npos);
    EXPECT_NE(refusal(imputed + Strings{"--draft-placement", "dedicated"}).find("wait for the verification"),
              std::string::npos);
    EXPECT_NE(refusal(imputed + Strings{"--tree", "2,1"}).find("wait for the verification"), std::string::npos);
    EXPECT_NE(refusal({"--method", "imputed", "--imputed-from", "99"}).find("the recording holds"), std::string::npos);
}

TEST(Replay, SeveralDraftsHaveCostsAndPlainDecodingOfTheirOwn) {
    const ScratchFile input(kInput), first(costs_file()),
        second(R"({"schema_version": 1, "t_draft_ms": 0.5, "t_target_ms": [2, 3]})");
    const NewFile recording, trace;
    ASSERT_EQ(run(record(input.path(), recording.path(),
                         {"--draft", kTarget, "--costs", first.path(), "--costs", second.path()}))
                  .code,
              3);
    const Strings simulate = {"simulate", "--recording", recording.path(), "--rules", "constant:2", "--json"};
    const Ended both = run(simulate);
    ASSERT_EQ(both.code, 0) << both.err;
    const Json json = Json::parse(both.out);
    ASSERT_EQ(json["costs"].size(), 2U);
    EXPECT_EQ(json["costs"][0]["t_draft_ms"], 0.1);
    EXPECT_EQ(json["costs"][1]["t_draft_ms"], 0.5);
    ASSERT_EQ(json["settings"].size(), 4U);
    for (const int draft : {0, 1}) {
        const Json& plain = json["settings"][static_cast<std::size_t>(2 * draft)];
        const Json& rule = json["settings"][static_cast<std::size_t>(2 * draft + 1)];
        EXPECT_EQ(plain["setting"], "draft " + std::to_string(draft + 1) + ", plain");
        EXPECT_NEAR(plain["ms_per_token"].get<double>(), draft + 1, 1e-9);
        EXPECT_NEAR(rule["speedup"].get<double>(),
                    plain["ms_per_token"].get<double>() / rule["ms_per_token"].get<double>(), 1e-9);
    }
    const Ended traced = run(simulate + Strings{"--trace", trace.path()});
    EXPECT_EQ(traced.code, 2);
    EXPECT_NE(traced.err.find("name one with --draft"), std::string::npos) << traced.err;
    const Ended one = run(simulate + Strings{"--trace", trace.path(), "--draft", "2"});
    EXPECT_EQ(one.code, 0) << one.err;
    EXPECT_EQ(Json::parse(one.out)["costs"]["t_draft_ms"], 0.5);
    EXPECT_FALSE(trace.text().empty());
}

TEST(Replay, RecordsEachDraftsOwnType) {
    const NewFile half, recording;
    std::filesystem::create_directory(half.path());
    for (const char* file : {"model.safetensors", "tokenizer.json"})
        std::filesystem::copy(kDraft + "/" + file, half.path());
    std::string config(std::istreambuf_iterator<char>(std::ifstream(kDraft + "/config.json").rdbuf()), {});
    config.replace(config.find("\"float32\""), 9, "\"float16\"");
    std::ofstream(half.path() + "/config.json") << config;
    const ScratchFile input(R"({"prompt_token_ids": [1, 2, 3]})"), costs(costs_file());
    const Ended ended = run(record(input.path(), recording.path(),
                                   {"--draft", half.path(), "--costs", costs.path(), "--costs", costs.path()}));
    std::filesystem::remove_all(half.path());
    ASSERT_EQ(ended.code, 0) << ended.err;
    const auto drafts = spec::read_recording(recording.path()).head.drafts;
    EXPECT_EQ(drafts.at(0).dtype, "float32");
    EXPECT_EQ(drafts.at(1).dtype, "float16");
}

// ---- what is refused ----

void expect_refused(const Strings& arguments, int code, const std::string& why) {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.code, code) << ended.err;
    EXPECT_NE(ended.err.find(why), std::string::npos) << ended.err;
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
}

TEST(Replay, RecordsWhereTheFirstPromptLeavesNoRoomForDrafts) {
    const ScratchFile input(R"({"prompt_token_ids": [1, 2, 3], "max_new_tokens": 1})");
    const NewFile output;
    const Ended ended = run(record(input.path(), output.path(), {"--max-context", "48", "--max-draft-tokens", "2"}));
    EXPECT_EQ(ended.code, 0) << ended.err;
}

TEST(Replay, CostsOfADisturbedMachineAreWarnedOf) {
    const ScratchFile input("{\"prompt_token_ids\": [1, 2, 3], \"max_new_tokens\": 4}\n"), calm(costs_file());
    const ScratchFile disturbed(R"({"machine": {"disturbance": "1.5 of 2 cores are busy"}, )" + costs_file().substr(1));
    const std::string warning = "warning: " + disturbed.path() + " was measured on a disturbed machine (1.5 of 2 cores";
    for (const ScratchFile* costs : {&calm, &disturbed}) {
        const NewFile recording;
        const Ended recorded = run(record(input.path(), recording.path(), {"--costs", costs->path()}));
        EXPECT_EQ(recorded.err.find(warning) != std::string::npos, costs == &disturbed) << recorded.err;
        const Ended simulated =
            run({"simulate", "--recording", recording.path(), "--rules", "static:1.5", "--costs", costs->path()});
        EXPECT_EQ(simulated.code, 0);
        EXPECT_EQ(simulated.err.find(warning) != std::string::npos, costs == &disturbed) << simulated.err;
    }
}

// The recording was made on a busy machine, and says so itself; older ones say it in their environment alone.
TEST(Replay, RecordedCostsOfABusyMachineAreWarnedOf) {
    const ScratchFile input("{\"prompt_token_ids\": [1, 2, 3], \"max_new_tokens\": 4}\n"), costs(costs_file());
    const NewFile recording;
    ASSERT_EQ(run(record(input.path(), recording.path(), {"--costs", costs.path()})).code, 0);
    spec::Recording read = spec::read_recording(recording.path());
    const std::string busy = "1.5 of 2 cores are busy", warning = "was measured on a disturbed machine (" + busy;
    const auto warns = [&](const std::string& head, const Strings& more = {}) {
        const ScratchFile file(head + spec::pack(read.lines.front()));
        const Ended ended = run(Strings{"simulate", "--recording", file.path(), "--rules", "static:1.5"} + more);
        EXPECT_EQ(ended.code, 0) << ended.err;
        return ended.err.find(file.path() + " " + warning) != std::string::npos;
    };
    Json environment = Json::parse(read.head.environment);
    environment["machine"]["disturbance"] = busy;
    read.head.environment = environment.dump();
    read.head.costs.front().disturbance.clear();
    EXPECT_FALSE(warns(spec::pack(read.head))) << "the machine was busy, the costs are of another";
    read.head.costs.front().disturbance = busy;
    EXPECT_TRUE(warns(spec::pack(read.head)));
    EXPECT_FALSE(warns(spec::pack(read.head), {"--costs", costs.path()}));
    EXPECT_FALSE(warns(spec::pack(read.head), {"--t-draft", "1", "--t-target", "5"}));
    EXPECT_TRUE(warns(spec::pack(read.head), {"--t-draft", "1"}));
    spec::BlockWriter older;
    std::size_t length = 0;
    older.json = spec::BlockReader(spec::pack(read.head), length).json;
    older.json["costs"][0].erase("machine");
    EXPECT_TRUE(warns(older.finish()));
}

TEST(Replay, ASilentPipeIsWaitedForAndASignalEndsIt) {
    const ScratchFile costs(costs_file());
    const NewFile output;
    const Strings arguments = record("-", output.path(), {"--costs", costs.path(), "--collective-timeout", "1"});
    const std::string line = "'{\"prompt_token_ids\": [1, 2, 3], \"max_new_tokens\": 2}'";
    // Two seconds of silence before and between the lines.
    const Ended ended = run(arguments, "sh -c '(sleep 2; echo \"$0\"; sleep 2; echo \"$0\") | \"$@\"' " + line);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(spec::read_recording(output.path()).texts().size(), 2U);
    const NewFile stopped;
    const Ended signalled =
        run(record("-", stopped.path(), {"--costs", costs.path()}),
            "sh -c '(echo \"$0\"; sleep 4) | (exec 3<&0; \"$@\" <&3 & sleep 2; kill -USR1 $!; wait $!)' " + line);
    EXPECT_EQ(signalled.code, 75) << signalled.err;
    EXPECT_EQ(spec::read_recording(stopped.path()).texts().size(), 1U);
}

TEST(Replay, ASignalEndsTheMeasuringOfCosts) {
    const ScratchFile input("{\"prompt_token_ids\": [1, 2]}\n");
    const NewFile output;
    const std::string demo = ENTRODRAFT_SOURCE_DIR "/model/demo/"; // whose costs take some fifteen seconds
    const Ended ended = run({"record", "--target", demo + "target", "--draft", demo + "draft", "--threads", "1",
                             "--input", input.path(), "--output", output.path()},
                            "timeout --preserve-status -s USR1 3");
    EXPECT_EQ(ended.code, 75) << ended.err;
    EXPECT_EQ(output.text(), "") << "costs were measured to their end";
}

TEST(Replay, RefusesInOneLineWhatCannotBe) {
    const ScratchFile input(kInput), no_recording("{}\n"), empty("");
    const NewFile output;
    expect_refused({"record", "--target", kTarget, "--input", input.path(), "--output", output.path()}, 2,
                   "--draft DIR or --head DIR is missing");
    expect_refused(Strings{"record"} + kPair + Strings{"--input", input.path()}, 2, "--output FILE is missing");
    expect_refused(record(input.path(), "-"), 2, "a recording goes to a file");
    expect_refused(record(input.path(), output.path(), {"--costs", "a", "--costs", "b"}), 2,
                   "--costs is given 2 times");
    expect_refused(record(empty.path(), output.path()), 1, "no prompt that can be decoded");
    const ScratchFile no_lines("no JSON\n");
    expect_refused(record(no_lines.path(), output.path()), 1, "that can be decoded; its first error: not JSON");
    expect_refused(record("/dev/null/nonexistent", output.path()), 1, "/dev/null/nonexistent");
    EXPECT_FALSE(std::filesystem::exists(output.path())) << "nothing was recorded";
    expect_refused({"simulate", "--recording", "/"}, 1, "/: is a directory");
    expect_refused({"simulate"}, 2, "--recording FILE is missing");
    expect_refused({"simulate", "--recording", no_recording.path()}, 1, "block 0");
    expect_refused({"simulate", "--recording", output.path() + "x"}, 1, "cannot be opened");
    expect_refused({"simulate", "--recording", no_recording.path(), "--rules", "static:1..2"}, 2, "FROM..TO..STEP");
    expect_refused({"simulate", "--recording", no_recording.path(), "--rules", "static:2..1..1"}, 2, "goes up");
    expect_refused({"simulate", "--recording", no_recording.path(), "--rules", "orakle"}, 2,
                   "expected-gain, all, oracle, grid or none; did you mean oracle?");
    expect_refused({"simulate", "--recording", no_recording.path(), "--rules", "static", "--trace", "-"}, 2,
                   "--trace writes a file");
    expect_refused({"simulate", "--recording", no_recording.path(), "--t-target", "5e-324"}, 2,
                   "--t-target must list milliseconds from 1e-6 to 1e9"); // its figures were null
    expect_refused({"simulate", "--recording", no_recording.path(), "--draft-ahead", "4"}, 2,
                   "--draft-placement dedicated");
    expect_refused({"simulate", "--recording", no_recording.path(), "--trace", "x"}, 2,
                   "--trace shows the rounds of one setting");
    expect_refused(Strings{"tune"} + kPair + Strings{"--input", input.path()}, 2, "--output FILE is missing");
    expect_refused(Strings{"tune"} + kPair + Strings{"--input", input.path(), "--output", output.path(), "--quiet"}, 1,
                   input.path() + " line 2: ");
    const ScratchFile prompts("{\"prompt_token_ids\": [1]}\n{\"prompt_token_ids\": [2], \"temperature\": 1}\n");
    const Strings tune = Strings{"tune"} + kPair + Strings{"--input", prompts.path(), "--quiet"};
    expect_refused(tune + Strings{"--output", output.path()}, 1, "temperature of its own");
    expect_refused(tune + Strings{"--output", prompts.path()}, 2, "--output and --input are the same file");
    expect_refused(tune + Strings{"--output", "-"}, 2, "--output -: it is written at the end, to a file");
    expect_refused(tune + Strings{"--output", output.path(), "--report", output.path()}, 2, "the same file");
    expect_refused(tune + Strings{"--output", output.path(), "--report", "/nowhere/r.json"}, 1, "/nowhere/r.json");
}

TEST(Replay, TuneRefusesARecordingOfOtherOptions) {
    const ScratchFile input("{\"prompt_token_ids\": [1, 2]}\n"), costs(costs_file());
    const NewFile recording, output;
    ASSERT_EQ(run(record(input.path(), recording.path(), {"--costs", costs.path(), "--temperature", "1"})).code, 0);
    const Strings tune =
        Strings{"tune"} + kPair + Strings{"--input", input.path(), "--output",    output.path(),   "--quiet",
                                          "--costs", costs.path(), "--recording", recording.path()};
    expect_refused(tune, 1, "its acceptance is 'gumbel', and that of this run is 'greedy'");
    expect_refused(tune + Strings{"--temperature", "1", "--max-draft-tokens", "16"}, 1, "holds drafts of up to");
    const Ended ended = run(tune + Strings{"--temperature", "1", "--max-new-tokens", "8", "--repetitions", "1"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_NE(ended.out.find("1 of them the same"), std::string::npos) << ended.out;
    EXPECT_NE(output.text().find("acceptance = gumbel"), std::string::npos);
}

TEST(Replay, CostsOfNarrowPassesAreRefused) {
    const ScratchFile input(R"({"prompt_token_ids": [1, 2, 3]})"), costs(costs_file()),
        narrow(R"({"schema_version": 1, "t_draft_ms": 0.1, "t_target_ms": [1, 1, 1]})");
    const NewFile recording;
    ASSERT_EQ(run(record(input.path(), recording.path(), {"--costs", costs.path()})).code, 0);
    const Strings simulate = {"simulate", "--recording", recording.path(), "--costs", narrow.path()};
    for (const Strings& rules : {Strings{"--rules", "static"}, Strings{"--rules", "oracle"}, Strings{}})
        expect_refused(simulate + rules, 2, "passes of up to 3 rows, and --max-draft-tokens 15 makes 16");
    for (const Strings& narrower :
         {Strings{"--max-draft-tokens", "2"}, Strings{"--rules", "none"}, Strings{"--t-target", "1"}})
        EXPECT_EQ(run(simulate + narrower).code, 0) << narrower.front();
}

TEST(Replay, NoFileIsReadTwiceOrWrittenOver) {
    const ScratchFile input(R"({"prompt_token_ids": [1, 2, 3]})"), costs(costs_file());
    const NewFile recording, output;
    ASSERT_EQ(run(record(input.path(), recording.path(), {"--costs", costs.path()})).code, 0);
    const std::string before = recording.text();
    const std::string again = std::filesystem::path(recording.path()).parent_path() / "." /
                              std::filesystem::path(recording.path()).filename();
    const Strings simulate = {"simulate", "--recording", recording.path(), "--rules", "static"};
    expect_refused(simulate + Strings{"--recording", again}, 2, "is given twice");
    expect_refused(simulate + Strings{"--output", again}, 2, "--output and --recording are the same file");
    expect_refused(simulate + Strings{"--output", output.path(), "--trace", output.path()}, 2,
                   "--output and --trace are the same file");
    expect_refused(simulate + Strings{"--output", costs.path(), "--costs", costs.path()}, 2,
                   "--output and --costs are the same file");
    expect_refused({"simulate", "--recording", "/no/such", "--output", "/no/such/directory/x"}, 1,
                   "/no/such/directory/x: cannot be written");
    EXPECT_EQ(recording.text(), before);
}

TEST(Replay, RecordAndTuneOfferOnlyWhatTheyRead) {
    for (const char* command : {"record", "tune"}) {
        expect_refused(Strings{command} + kPair + Strings{"--draft-placement", "dedicated"}, 2, "--draft-placement");
        const std::string help = run({command, "--help"}).out;
        EXPECT_NE(help.find("--draft "), std::string::npos);
        EXPECT_EQ(help.find("cascade"), std::string::npos) << help;
    }
    EXPECT_EQ(run({"bench", "latency", "--help"}).out.find("cascade"), std::string::npos);
    EXPECT_NE(run({"bench", "compare", "--help"}).out.find("a cascade"), std::string::npos);
}

// ---- figures ----

// The relative error of a mean of ratios with equal weights, by the i.i.d. model.
double relative_error(std::span<const double> values) {
    const auto n = static_cast<double>(values.size());
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
    double squares = 0;
    for (const double value : values)
        squares += (value - mean) * (value - mean);
    return std::sqrt(squares / (n - 1) / n) / mean;
}

TEST(Intervals, OfFewPromptsAreWideEnough) {
    // Two, three and four ratios about their mean; Student's 97.5 % quantiles of 1 to 3 degrees of freedom.
    const std::vector<double> values = {1, 3, 1, 3}, ones = {1, 1, 1, 1};
    const double quantiles[] = {12.706, 4.303, 3.182};
    for (std::size_t n = 2; n <= 4; ++n) {
        const auto some = std::span(values).first(n);
        const launch::Interval interval = launch::ratio_interval(some, std::span(ones).first(n));
        EXPECT_NEAR(std::log(interval.high / interval.mean) / relative_error(some), quantiles[n - 2], 0.001) << n;
    }
}

TEST(Intervals, OfRatiosAreStudentsOnALogarithmicScale) {
    using launch::ratio_interval;
    const std::vector<double> values = {1, 2, 3, 4}, ones = {1, 1, 1, 1};
    const launch::Interval interval = ratio_interval(values, ones);
    EXPECT_DOUBLE_EQ(interval.mean, 2.5);
    EXPECT_NEAR(interval.high, 2.5 * std::exp(3.182446 * relative_error(values)), 1e-9);
    EXPECT_NEAR(interval.high / interval.mean, interval.mean / interval.low, 1e-12);
    const launch::Interval exact = ratio_interval(std::vector<double>{2, 4, 8}, std::vector<double>{1, 2, 4});
    EXPECT_DOUBLE_EQ(exact.low, 2);
    EXPECT_DOUBLE_EQ(exact.high, 2);
    EXPECT_EQ(launch::format_interval(exact, 2), "2.00 to 2.00") << "of no width, and known";
    const launch::Interval single = ratio_interval(std::vector<double>{3}, std::vector<double>{3});
    EXPECT_FALSE(single.is_known());
    EXPECT_EQ(launch::format_interval(single, 2), "-");
    EXPECT_EQ(launch::format_speedup_interval(single), "-") << "though 1 is in it";
}

TEST(Intervals, OfTimesNeverCrossZero) {
    // What tune printed on a busy machine: -1.2476 to 6.6546 ms.
    const std::vector<double> ms = {300, 20, 25}, tokens = {32, 32, 32};
    const launch::Interval interval = launch::ratio_interval(ms, tokens);
    EXPECT_GT(interval.low, 0);
    EXPECT_GT(interval.high, interval.mean);
    EXPECT_EQ(launch::ratio_interval(std::vector<double>{0, 0}, std::vector<double>{1, 1}).high, 0);
}

TEST(Intervals, OfSpeedupsArePairedOverPromptsAndSayWhereTheyShowNothing) {
    const launch::PromptTimes plain = {{100, 210, 290}, {10, 20, 30}};
    // Each prompt in half the time, whatever its length, and in texts twice as long.
    const launch::PromptTimes twice = {{50.1, 104.9, 145.2}, {10, 20, 30}}, longer = {{100, 210, 290}, {20, 40, 60}};
    const launch::Interval speedup = launch::speedup_interval(plain, twice);
    EXPECT_NEAR(speedup.mean, 600 / 300.2, 1e-12);
    EXPECT_GT(speedup.low, 1.98);
    EXPECT_LT(speedup.high, 2.02);
    EXPECT_DOUBLE_EQ(launch::speedup_interval(plain, longer).mean, 2);
    EXPECT_EQ(launch::format_speedup_interval(launch::speedup_interval(plain, plain)),
              "1.000 to 1.000, no difference seen");
    EXPECT_EQ(launch::format_speedup_interval({2, 1.5, 2.5, 3}), "1.500 to 2.500");
    EXPECT_EQ(launch::format_speedup_interval({1.2, 0.93, 1.6, 3}), "0.930 to 1.600, no difference seen");
    EXPECT_EQ(launch::format_speedup_interval({0.5, 0.4, 0.6, 3}), "0.400 to 0.600");
    EXPECT_EQ(launch::format_speedup_interval({1.2, 1.2, 1.2, 1}), "-") << "one prompt shows nothing";
}

launch::ConfirmedRule rule_of(const std::string& name, double simulated_ms) {
    launch::ConfirmedRule rule;
    rule.tuned.best.setting.rule = spec::StopRuleOptions(name);
    rule.tuned.seconds_per_token = simulated_ms / 1e3;
    return rule;
}

// With the times of each rule, in their order.
void verify(std::vector<launch::ConfirmedRule>& rules, const std::vector<launch::PromptTimes>& times,
            const launch::PromptTimes& plain) {
    ASSERT_EQ(rules.size(), times.size());
    for (std::size_t i = 0; i < rules.size(); ++i)
        rules[i].times = times[i];
    launch::verify(rules, plain);
}

// Four prompts of ten tokens, a little apart from each other.
launch::PromptTimes times_of(double ms) {
    return {{ms, 1.01 * ms, 0.99 * ms, ms}, {10, 10, 10, 10}};
}

TEST(Tune, TheWinnerIsNotChosenByNoise) {
    std::vector<launch::ConfirmedRule> rules = {rule_of("constant", 1.2), rule_of("heuristic", 1.0),
                                                rule_of("static", 0.9)};
    // constant is fastest by a hair, heuristic within noise of it, static clearly slower.
    const std::vector<launch::PromptTimes> times = {
        {{10, 10, 10, 10}, {10, 10, 10, 10}}, {{10.2, 9.9, 10.3, 9.8}, {10, 10, 10, 10}}, times_of(12)};
    verify(rules, times, times_of(20));
    EXPECT_EQ(rules[0].setting().name(), "constant");
    EXPECT_DOUBLE_EQ(rules[0].speedup.mean, 2);
    EXPECT_FALSE(rules[1].is_slower());
    EXPECT_TRUE(rules[2].is_slower());
    const launch::ConfirmedRule& winner = launch::winner_of(rules);
    EXPECT_EQ(winner.setting().name(), "heuristic");
    EXPECT_TRUE(winner.beats_plain());
    EXPECT_EQ(
        launch::remarks_of(winner, rules),
        std::vector<std::string>{"the first row's rule was faster here, but at 95 % the runs do not tell the two "
                                 "apart; of such rules that beat plain decoding this one has the lowest simulated "
                                 "time"});
    EXPECT_NE(launch::table_of({launch::confirmed_row(rules[0])}).find("0.00 to 0.00"), std::string::npos)
        << "the first row is known to lead";
    EXPECT_TRUE(launch::remarks_of(rules[0], rules).empty());
}

TEST(Tune, WritesNothingThatIsSlowerThanPlainDecodingWithoutSayingSo) {
    std::vector<launch::ConfirmedRule> rules = {rule_of("constant", 1.0), rule_of("expected-gain", 1.1)};
    verify(rules, {times_of(22), times_of(24)}, times_of(20));
    const launch::ConfirmedRule& winner = launch::winner_of(rules);
    EXPECT_FALSE(winner.may_beat_plain());
    EXPECT_EQ(winner.setting().name(), "expected-gain") << "it drafts only where that pays";
    EXPECT_EQ(launch::remarks_of(winner, rules),
              std::vector<std::string>{"nothing beats plain decoding here: leave --draft out; with one, expected-gain "
                                       "drafts only where it pays"});
}

TEST(Tune, PrefersWhatIsSeenToBeatPlainDecodingToWhatOnlyMay) {
    // constant is the fastest; static, of the lowest simulated time, is as fast on average and varies too much to tell.
    const launch::PromptTimes wild = {{2, 30, 3, 6}, {10, 10, 10, 10}};
    std::vector<launch::ConfirmedRule> rules = {rule_of("constant", 1.2), rule_of("static", 0.9)};
    verify(rules, {{{10, 10.3, 9.8, 9.9}, {10, 10, 10, 10}}, wild}, times_of(20));
    EXPECT_EQ(launch::winner_of(rules).setting().name(), "constant");

    std::vector<launch::ConfirmedRule> unsure = {rule_of("static", 0.9)};
    verify(unsure, {wild}, times_of(20));
    const launch::ConfirmedRule& winner = launch::winner_of(unsure);
    EXPECT_TRUE(winner.may_beat_plain() && !winner.beats_plain());
    EXPECT_EQ(launch::remarks_of(winner, unsure),
              std::vector<std::string>{"no difference from plain decoding seen: give more prompts or --repetitions"});
}

TEST(Tune, AsksForMorePromptsAloneWhereOneConfirms) {
    std::vector<launch::ConfirmedRule> rules = {rule_of("constant", 1.2), rule_of("static", 0.9)};
    verify(rules, {{{10}, {10}}, {{11}, {10}}}, {{20}, {10}});
    const launch::ConfirmedRule& winner = launch::winner_of(rules);
    EXPECT_TRUE(winner.may_beat_plain() && !winner.beats_plain());
    EXPECT_EQ(
        launch::remarks_of(winner, rules),
        (std::vector<std::string>{
            "no difference from plain decoding can be seen on a single prompt: give more prompts",
            "the first row's rule was faster here, but at 95 % the runs do not tell the two apart; of such rules with "
            "a speed-up above 1 this one has the lowest simulated time"}));
}

TEST(Tune, SaysWhereTimesAreFarFromCountsTimesCosts) {
    const auto rules_with = [](double predicted_ms) {
        std::vector<launch::ConfirmedRule> rules = {rule_of("constant", 1)};
        rules[0].predicted_ms = predicted_ms;
        verify(rules, {times_of(10)}, times_of(20)); // 1 ms a token
        return rules;
    };
    EXPECT_EQ(launch::prediction_warning(rules_with(1.2)), "");
    EXPECT_EQ(
        launch::prediction_warning(rules_with(0.5)),
        "warning: measured times are 2.00 times counts x costs: the machine was busy, or the costs are not of this "
        "run\n");
    EXPECT_NE(launch::prediction_warning(rules_with(2)).find("0.50 times"), std::string::npos);
}

} // namespace replay_test
