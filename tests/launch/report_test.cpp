// What is printed for people: figures and forms.
#include "entrodraft/launch/generate/report.h"

#include <gtest/gtest.h>

namespace {

using namespace entrodraft;
using namespace entrodraft::launch;

RunSummary summary_of_a_run() {
    RunSummary summary;
    summary.served = 2;
    summary.wall_seconds = 1.5;
    summary.ranks = 2;
    summary.threads = 1;
    summary.speculation.drafter.kinds = {DrafterKind::model};
    summary.speculation.drafter.drafts = {0};
    summary.speculation.stop_rules.resize(1);
    summary.stats.prompt_tokens = 50;
    summary.stats.new_tokens = 100;
    summary.stats.rounds = summary.stats.target_passes = 40;
    summary.stats.drafted = summary.stats.draft_passes = 120;
    summary.stats.accepted = 60;
    summary.stats.seconds.total = 1.2;
    summary.stats.seconds.prefill = 0.2;
    summary.stats.seconds.draft = 0.3;
    summary.stats.seconds.score = 0.5;
    return summary;
}

bool holds(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(Report, SummaryHoldsTheFiguresOfTheDesign) {
    const std::string text = format_summary(summary_of_a_run());
    EXPECT_TRUE(holds(text, "2 prompts, in 1.50 s on 2 ranks of 1 thread\n")) << text;
    EXPECT_TRUE(holds(text, "50 prompt, 100 new; 10.000 ms a new token (100.0 a second)")) << text;
    EXPECT_TRUE(
        holds(text, "40 rounds, 120 drafted, 60 accepted (draft acceptance rate 0.500), mean acceptance length 2.50"))
        << text;
    EXPECT_TRUE(holds(text, "40 target, 120 draft; 2.50 tokens a target pass")) << text;
    EXPECT_TRUE(holds(text, "drafting 30.0 %")) << text;
    EXPECT_TRUE(holds(text, "scoring 50.0 %")) << text;
    EXPECT_TRUE(holds(text, "other 20.0 %")) << text;
    EXPECT_TRUE(holds(text, "moving-average, factor 0.5, window 7")) << text;
}

TEST(Report, AdvisesToResumeOnlyWhereThatWorks) {
    RunSummary summary = summary_of_a_run();
    EXPECT_FALSE(holds(format_summary(summary), "stopped"));
    summary.interrupted = true;
    EXPECT_TRUE(holds(format_summary(summary), "stopped by a signal\n"));
    summary.resumable = true;
    EXPECT_TRUE(holds(format_summary(summary), "stopped by a signal; run again with --resume to serve the rest\n"));
}

TEST(Report, PlainDecodingHasNoRule) {
    RunSummary summary = summary_of_a_run();
    summary.speculation.drafter.kinds.clear();
    EXPECT_FALSE(holds(format_summary(summary), "rule"));
}

TEST(Report, LossyAcceptanceSaysSo) {
    RunSummary summary = summary_of_a_run();
    EXPECT_FALSE(holds(format_summary(summary), "LOSSY"));
    summary.speculation.acceptance.lenience = 0.5;
    EXPECT_TRUE(holds(format_summary(summary), "lenience 0.5: LOSSY, not the target's own text"));
    summary.speculation.acceptance = {spec::Acceptance::typical, 1, {}};
    EXPECT_TRUE(holds(format_summary(summary), "acceptance typical: LOSSY"));
}

TEST(Report, ErrorsResumedLinesAndChecksAreCounted) {
    RunSummary summary = summary_of_a_run();
    summary.with_error = 3;
    summary.resumed = 4;
    summary.checked = 2;
    summary.check_differs = 1;
    summary.interrupted = summary.resumable = true;
    const std::string text = format_summary(summary);
    EXPECT_TRUE(holds(text, "3 not served"));
    EXPECT_TRUE(holds(text, "4 found in the output already"));
    EXPECT_TRUE(holds(text, "1 of 2 texts equal"));
    EXPECT_TRUE(holds(text, "run again with --resume"));
}

TEST(Report, NothingServedDividesByNothing) {
    EXPECT_FALSE(holds(format_summary(RunSummary{}), "nan"));
    EXPECT_TRUE(holds(format_summary(RunSummary{}), "0 prompts"));
}

TEST(Report, BarIsHeldAtItsEnds) {
    EXPECT_EQ(format_bar(0, 4), "[----]");
    EXPECT_EQ(format_bar(0.5, 4), "[##--]");
    EXPECT_EQ(format_bar(7, 4), "[####]");
    EXPECT_EQ(format_bar(-1, 4), "[----]");
}

TEST(Report, DurationsReadLikeClocks) {
    EXPECT_EQ(format_duration(42), "0:42");
    EXPECT_EQ(format_duration(3787), "1:03:07");
    EXPECT_EQ(format_duration(-5), "0:00");
}

} // namespace
