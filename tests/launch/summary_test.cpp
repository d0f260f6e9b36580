// The summary of a run: figures on stderr and in JSON.
#include "launch/io/summary.h"

#include <gtest/gtest.h>

namespace summary_test {

using namespace entrodraft;
using namespace entrodraft::launch;

RunSummary summary_of_a_run() {
    RunSummary summary;
    summary.served = 2;
    summary.wall_seconds = 1.5;
    summary.load_seconds = 0.5;
    summary.load_bytes = 2'000'000'000;
    summary.ranks = 2;
    summary.speculation.drafter.kinds = {"model"};
    summary.speculation.drafter.drafts = {0};
    summary.speculation.stop_rules.resize(1);
    summary.stats.prompt_tokens = 50;
    summary.stats.new_tokens = 100;
    summary.stats.rounds = summary.stats.target_passes = 40;
    summary.stats.drafted = summary.stats.drafted_levels = summary.stats.draft_passes = 120;
    summary.stats.accepted = 60;
    summary.stats.seconds.total = 1.2;
    summary.stats.seconds.prefill = 0.2;
    summary.stats.seconds.draft = 0.3;
    summary.stats.seconds.score = 0.5;
    summary.latencies = {{80, 120}, {10, 12}, {600, 900}};
    return summary;
}

bool holds(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(Summary, IsTwoLinesUnlessMoreIsAskedFor) {
    RunSummary summary = summary_of_a_run();
    EXPECT_EQ(format_summary(summary, false),
              "2 prompts in 1.50 s on 2 ranks: 100 tokens, 66.7 tokens/s (median 12.0 ms/token), median TTFT 120 ms\n"
              "drafting: 2.50 tokens per target pass, 50 % of drafted tokens accepted (moving-average); speed-up at "
              "most 1.75\n");
    summary.served = 1;
    summary.ranks = 1;
    summary.wall_seconds = 0.04;
    summary.latencies = {{1.12}, {0.33}, {40}};
    EXPECT_TRUE(format_summary(summary, false)
                    .starts_with("1 prompt in 0.04 s on 1 rank: 100 tokens, 2500 tokens/s (0.33 ms/token), "
                                 "TTFT 1.12 ms\n"))
        << format_summary(summary, false);
}

TEST(Summary, SaysThatTheMachineWasBusyOnlyWhereItWas) {
    RunSummary summary = summary_of_a_run();
    EXPECT_FALSE(holds(format_summary(summary, true), "warning")) << format_summary(summary, true);
    summary.machine.disturbance = "1.1 of 2 cores are busy with other work";
    EXPECT_TRUE(holds(format_summary(summary, false),
                      "\nwarning: 1.1 of 2 cores are busy with other work: times are not to be trusted\n"));
    EXPECT_EQ(summary_json(summary, GenerateOptions{}, Json::object())["machine"]["disturbance"],
              summary.machine.disturbance);
}

TEST(Summary, VerboseHoldsTheFiguresOfTheDesign) {
    RunSummary summary = summary_of_a_run();
    summary.stats.by_position = {{40, 30}, {30, 15}, {0, 0}};
    const std::string text = format_summary(summary, true);
    EXPECT_TRUE(text.starts_with(format_summary(summary, false))) << text;
    EXPECT_TRUE(holds(text, "50 prompt, 100 new; prefill 0.200 s, decoding 10.000 ms/token\n")) << text;
    EXPECT_TRUE(holds(text, "  TTFT       ms: mean 100, median 120, p90 120, p99 120\n")) << text;
    EXPECT_TRUE(holds(text, "  TPOT       ms: mean 11.0, median 12.0, p90 12.0, p99 12.0\n")) << text;
    EXPECT_TRUE(
        holds(text, "40 rounds, 120 drafted, 60 accepted (draft acceptance rate 0.500), mean acceptance length 2.50"))
        << text;
    EXPECT_TRUE(holds(text, "  acceptance by draft position: 0.75 0.50 -\n")) << text;
    EXPECT_TRUE(holds(text, "40 target, 120 draft\n")) << text;
    EXPECT_TRUE(holds(text, "  loading    0.500 s, 2.000 GB, 4.00 GB/s\n")) << text;
    const Json json = summary_json(summary, GenerateOptions{}, Json::object());
    EXPECT_EQ(json["load_bytes"].dump(), "2000000000");
    EXPECT_EQ(json["load_bytes_per_second"], 4e9);
    EXPECT_TRUE(holds(text, "draft 30.0 %, entropy 0.0 %, broadcast 0.0 %, score 50.0 %")) << text;
    EXPECT_TRUE(holds(text, "other 20.0 %")) << text;
    EXPECT_TRUE(holds(text, "moving-average:factor=0.3:window=7")) << text;
}

TEST(Summary, AdvisesToResumeOnlyWhereThatWorks) {
    RunSummary summary = summary_of_a_run();
    EXPECT_FALSE(holds(format_summary(summary, false), "stopped"));
    summary.interrupted = true;
    EXPECT_TRUE(holds(format_summary(summary, false), "stopped by a signal\n"));
    summary.resumable = true;
    EXPECT_TRUE(
        holds(format_summary(summary, false), "stopped by a signal; run again with --resume to serve the rest\n"));
}

TEST(Summary, PlainDecodingHasNoLineOfDrafting) {
    RunSummary summary = summary_of_a_run();
    summary.speculation.drafter.kinds.clear();
    EXPECT_FALSE(holds(format_summary(summary, false), "drafting"));
    EXPECT_FALSE(holds(format_summary(summary, true), "rule"));
    EXPECT_FALSE(estimated_speedup(summary));
}

// Of 40 passes, which take 12.5 ms on average. Shares of time: drafting 0.3, passes 0.5, else 0.2.
TEST(Summary, TheEstimatedSpeedUpCountsWhatRowsCost) {
    RunSummary summary = summary_of_a_run();
    summary.stats.passes_of_rows = {0, 3, 0, 0, 37};
    summary.stats.seconds_of_rows = {0, 0.015, 0, 0, 0.485};
    EXPECT_DOUBLE_EQ(estimated_speedup(summary)->at_most, 2.5 * 0.7);
    EXPECT_DOUBLE_EQ(estimated_speedup(summary)->likely.value(), 2.5 * (0.2 + 0.5 * 5 / 12.5));
    EXPECT_TRUE(holds(format_summary(summary, false), "; estimated speed-up 1.00\n")) << format_summary(summary, false);
    EXPECT_DOUBLE_EQ(summary_json(summary, GenerateOptions{}, Json::object())["estimated_speedup"], 1);
    summary.costs = spec::Costs{1, {1, 1, 1, 1}};
    EXPECT_DOUBLE_EQ(estimated_speedup(summary)->likely.value(), 1) << "the run's own times come first";
}

TEST(Summary, TheSpeedUpIsABoundWhereNobodyKnowsWhatRowsCost) {
    RunSummary summary = summary_of_a_run();
    summary.stats.passes_of_rows = {0, 2, 0, 0, 38};
    summary.stats.seconds_of_rows = {0, 0.010, 0, 0, 0.490};
    EXPECT_FALSE(estimated_speedup(summary)->likely) << "two passes are not enough";
    EXPECT_TRUE(holds(format_summary(summary, false), "; speed-up at most 1.75\n"));
    const Json json = summary_json(summary, GenerateOptions{}, Json::object());
    EXPECT_TRUE(json["estimated_speedup"].is_null());
    EXPECT_DOUBLE_EQ(json["speedup_at_most"], 1.75);
    summary.draft_worth = spec::DraftWorth{.row_costs = {1, 1.5, 1.75, 4}}; // 38 passes of four units, two of one
    EXPECT_DOUBLE_EQ(estimated_speedup(summary)->likely.value(), 2.5 * (0.2 + 0.5 * 40 / 154));
    summary.draft_worth.reset();
    // 38 passes of two units and two of one.
    summary.costs = spec::Costs{1, {1, 1.5, 1.75, 2}};
    EXPECT_DOUBLE_EQ(estimated_speedup(summary)->likely.value(), 2.5 * (0.2 + 0.5 * 40 / 78));
}

TEST(Summary, ARuleThatDraftsNothingSaysWhy) {
    RunSummary summary = summary_of_a_run();
    summary.speculation.stop_rules = {spec::StopRuleOptions("expected-gain")};
    summary.stats.drafted = summary.stats.drafted_levels = summary.stats.draft_passes = summary.stats.accepted = 0;
    EXPECT_TRUE(holds(format_summary(summary, false), "nothing was drafted (expected-gain)\n"))
        << format_summary(summary, false);
    summary.draft_worth = spec::DraftWorth{40, 0, 0.72, true, 0.09, 0.1, 0.6};
    EXPECT_TRUE(holds(format_summary(summary, false),
                      "nothing was drafted (expected-gain); a draft pass takes 0.72 of the time of a token without a "
                      "draft, a further row of the target 0.09, and a drafted token is accepted with a chance of 0.60: "
                      "drafts would cost more than they save\n"))
        << format_summary(summary, false);
    summary.draft_worth->is_pass_timed = false;
    EXPECT_TRUE(holds(format_summary(summary, false), "a draft pass is taken for 0.72 of"));
    summary.draft_worth->declined_for_reading = 30;
    EXPECT_TRUE(holds(format_summary(summary, false), "read the texts first, 0.10 a token, for longer than"));
    const Json worth = summary_json(summary, GenerateOptions{}, Json::object())["draft_worth"];
    EXPECT_EQ(worth["rounds_declined"], 40);
    EXPECT_EQ(worth["rounds_declined_for_reading"], 30);
    EXPECT_DOUBLE_EQ(worth["draft_pass"], 0.72);
    summary.stats.drafting_rounds = 3; // of 40
    EXPECT_FALSE(holds(format_summary(summary, false), "a draft pass"));
}

TEST(Summary, NoSpeedUpIsEstimatedOfBatches) {
    RunSummary summary = summary_of_a_run();
    EXPECT_TRUE(estimated_speedup(summary));
    summary.batch_size = 4;
    summary.replicas_busy_seconds = {1.2};
    EXPECT_FALSE(estimated_speedup(summary));
    EXPECT_FALSE(holds(format_summary(summary, false), "speed-up"));
}

TEST(Summary, LossyAcceptanceSaysSo) {
    RunSummary summary = summary_of_a_run();
    summary.stats.overlap = 50;
    summary.stats.overlaps = 80;
    EXPECT_FALSE(holds(format_summary(summary, false), "LOSSY"));
    EXPECT_TRUE(iid_model(summary).has_value());
    summary.speculation.acceptance = {spec::Acceptance::rejection, 0.5, {}};
    EXPECT_FALSE(iid_model(summary).has_value()) << "that is of text that is the target's own";
    EXPECT_TRUE(holds(format_summary(summary, false), "rejection:lenience=0.5: LOSSY, not the target's own text"));
    summary.speculation.acceptance = {spec::Acceptance::typical, 1, {}};
    EXPECT_TRUE(holds(format_summary(summary, false), "acceptance typical: LOSSY"));
    summary.speculation.acceptance.kind = spec::Acceptance::bild;
    EXPECT_TRUE(holds(format_summary(summary, false), "acceptance bild: LOSSY"));
}

TEST(Summary, FailedAndResumedLinesSlowRanksAndChecksAreInTheShortFormToo) {
    RunSummary summary = summary_of_a_run();
    summary.with_error = 3;
    summary.resumed = 4;
    summary.checked = 2;
    summary.check_differs = 1;
    summary.interrupted = summary.resumable = true;
    summary.slowest_rank = "rank 1 (host n1): the others waited 34 % of the time for it";
    const std::string text = format_summary(summary, false);
    EXPECT_TRUE(holds(text, "2 prompts (3 failed: see their error lines; 4 found in the output already) in ")) << text;
    EXPECT_TRUE(holds(text, "check: 1 of 2 texts equal")) << text;
    EXPECT_TRUE(holds(text, "slowest: rank 1")) << text;
    EXPECT_TRUE(holds(text, "run again with --resume")) << text;
}

TEST(Summary, NothingServedDividesByNothing) {
    for (const bool verbose : {false, true}) {
        EXPECT_FALSE(holds(format_summary(RunSummary{}, verbose), "nan"));
        EXPECT_TRUE(holds(format_summary(RunSummary{}, verbose), "0 prompts"));
    }
    const Json json = summary_json({}, {}, Json::object());
    EXPECT_TRUE(json["ttft_ms"].is_null());
    EXPECT_TRUE(json["time_shares"].is_null());
    EXPECT_EQ(json["tokens_per_second"], 0);
}

TEST(Summary, JsonHoldsWhatTheLinesShowAndWhatWasAskedFor) {
    RunSummary summary = summary_of_a_run();
    summary.stats.by_position = {{40, 30}, {30, 15}};
    summary.stats.overlap = 6;
    summary.stats.overlaps = 8;
    GenerateOptions options;
    options.given.add({"target", "t", "", ""});
    options.given.add({"draft", "d", "", ""});
    const Json json = summary_json(summary, options, {{"ranks", 2}});
    EXPECT_EQ(json["schema_version"], 1);
    EXPECT_EQ(json["prompts"], (Json{{"completed", 2}, {"failed", 0}, {"resumed", 0}}));
    EXPECT_EQ(json["new_tokens"], 100);
    EXPECT_DOUBLE_EQ(json["tokens_per_second"], 100 / 1.5);
    EXPECT_EQ(json["ttft_ms"]["mean"], 100);
    EXPECT_EQ(json["ttft_ms"]["p99"], 120);
    EXPECT_EQ(json["tpot_ms"]["mean"], 11);
    EXPECT_EQ(json["acceptance_by_position"][1], (Json{{"verified", 30}, {"accepted", 15}}));
    EXPECT_DOUBLE_EQ(json["time_shares"]["score"], 0.5);
    EXPECT_DOUBLE_EQ(json["speedup_at_most"], 1.75);
    EXPECT_EQ(json["alpha"], 0.75);
    EXPECT_GT(json["iid_model"]["speedup"], 1);
    EXPECT_EQ(json["settings"]["acceptance"], "gumbel");
    EXPECT_EQ(json["options"], (Json{{"target", "t"}, {"draft", {"d"}}}));
    EXPECT_EQ(json["environment"]["ranks"], 2);
}

} // namespace summary_test
