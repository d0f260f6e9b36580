// Messages between replicas come out as they went in.
#include "launch/serve/messages.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace messages_test {

using namespace entrodraft;
using namespace entrodraft::launch;

// Different numbers everywhere.
spec::Stats stats_of(std::int64_t first, int n_levels) {
    spec::Stats stats;
    for (std::int64_t* member :
         {&stats.sequences, &stats.prompt_tokens, &stats.new_tokens, &stats.rounds, &stats.drafted, &stats.accepted,
          &stats.target_passes, &stats.draft_passes, &stats.drafting_rounds, &stats.overlaps})
        *member = first++;
    stats.passes_of_rows = {first, first + 1};
    stats.seconds_of_rows = {0.125, 0.25};
    stats.rounds_of_accepted = {first + 2};
    stats.by_position = {{first + 3, first + 4}, {first + 5, first + 6}};
    stats.by_entropy = {{first + 7, first + 8}};
    stats.overlap = static_cast<double>(first) + 0.5;
    stats.seconds.draft = 1.5;
    stats.seconds.first_token = 0.25;
    stats.seconds.total = 2.5;
    for (int level = 0; level < n_levels; ++level)
        stats.levels.push_back(stats_of(first + 100, 0));
    return stats;
}

TEST(Messages, ComeOutAsTheyWentIn) {
    const Report report = unpack<Report>(pack(Report{.result = "{}",
                                                     .order = 7,
                                                     .checked = true,
                                                     .ends_request = true,
                                                     .text = "a",
                                                     .logprobs = {{{1, -0.5F}, {{2, -0.25F}}}, {{3, -1}, {}}},
                                                     .trace = std::string("b\0c\n", 4),
                                                     .note = "d"}));
    EXPECT_EQ(report.result, "{}");
    EXPECT_EQ(report.order, 7);
    EXPECT_FALSE(report.stats);
    EXPECT_TRUE(report.checked);
    EXPECT_TRUE(report.ends_request);
    EXPECT_EQ(report.text, "a");
    ASSERT_EQ(report.logprobs.size(), 2u);
    EXPECT_EQ(report.logprobs[0].emitted.log_prob, -0.5F);
    EXPECT_EQ(report.logprobs[0].top.at(0).token, 2);
    EXPECT_EQ(report.logprobs[1].emitted.token, 3);
    EXPECT_EQ(report.trace, std::string("b\0c\n", 4));
    EXPECT_EQ(report.note, "d");
    EXPECT_FALSE(report.busy_seconds);
    EXPECT_FALSE(report.interrupted);
    const Assignment change = unpack<Assignment>(pack(Assignment{.state = RunState::finished}));
    EXPECT_EQ(change.state, RunState::finished);
    EXPECT_FALSE(change.request);
}

TEST(Messages, HoldAllOfARequest) {
    spec::Request request;
    request.id = "\"x\"";
    request.sequence_key = 1;
    request.prompt = {2, 3};
    request.max_new_tokens = 4;
    request.sampling = {0.5, 6, 0.7, 0.8, 9};
    spec::LogitProcessing& processing = request.processing;
    processing.repetition_penalty = 1.5;
    processing.presence_penalty = 2.5;
    processing.frequency_penalty = 3.5;
    processing.no_repeat_ngram_size = 4;
    processing.min_new_tokens = 5;
    processing.logit_bias = {{6, 7.5F}, {8, 9.5F}};
    processing.banned_tokens = {10};
    processing.constraint = {model::grammar::Language::regex, "a+"};
    processing.sequence_bias = {{{1, 2}, 0.5F}, {{3}, -1}};
    processing.suppress_tokens = {4, 5};
    processing.decay = {1.5, 6};
    request.beams = {11, 0.3, spec::EarlyStopping::never, 2};
    request.num_samples = 12;
    request.sample = 13;
    request.ignore_eos = true;
    request.stop_rule = "static:2";
    request.stop_strings = {"", "stop"};
    request.metadata = "{}";
    const Assignment read = unpack<Assignment>(pack(Assignment{.order = 11, .request = request}));
    EXPECT_EQ(read.state, RunState::serving);
    EXPECT_EQ(read.order, 11);
    ASSERT_TRUE(read.request);
    EXPECT_EQ(read.request->id, request.id);
    EXPECT_EQ(read.request->sequence_key, 1u);
    EXPECT_EQ(read.request->beams.num_beams, 11);
    EXPECT_EQ(read.request->beams.early_stopping, spec::EarlyStopping::never);
    EXPECT_EQ(read.request->num_samples, 12);
    EXPECT_EQ(read.request->sample, 13);
    EXPECT_EQ(read.request->prompt, request.prompt);
    EXPECT_EQ(read.request->max_new_tokens, 4);
    EXPECT_EQ(read.request->sampling.temperature, 0.5);
    EXPECT_EQ(read.request->sampling.top_k, 6);
    EXPECT_EQ(read.request->sampling.seed, 9u);
    EXPECT_EQ(read.request->processing.frequency_penalty, 3.5);
    EXPECT_EQ(read.request->processing.min_new_tokens, 5);
    EXPECT_EQ(read.request->processing.logit_bias, request.processing.logit_bias);
    EXPECT_EQ(read.request->processing.banned_tokens, request.processing.banned_tokens);
    EXPECT_EQ(read.request->processing.sequence_bias, request.processing.sequence_bias);
    EXPECT_EQ(read.request->processing.suppress_tokens, request.processing.suppress_tokens);
    EXPECT_EQ(read.request->processing.decay, request.processing.decay);
    EXPECT_EQ(read.request->processing.constraint, request.processing.constraint);
    EXPECT_TRUE(read.request->ignore_eos);
    EXPECT_EQ(read.request->stop_rule, "static:2");
    EXPECT_EQ(read.request->stop_strings, request.stop_strings);
    EXPECT_EQ(read.request->metadata, "{}");
    EXPECT_FALSE(read.request->plain);
}

TEST(Messages, HoldAllThatWasCounted) {
    Report report;
    report.stats = stats_of(1, 2);
    report.busy_seconds = 54.5;
    report.interrupted = true;
    const std::vector<std::byte> bytes = pack(report);
    const Report read = unpack<Report>(bytes);
    ASSERT_TRUE(read.stats);
    EXPECT_EQ(pack(read), bytes);
    EXPECT_TRUE(read.interrupted);
    EXPECT_EQ(read.busy_seconds, 54.5);
    EXPECT_EQ(read.stats->seconds.first_token, 0.25);
    EXPECT_EQ(read.stats->drafting_rounds, 9);
    EXPECT_EQ(read.stats->by_position.at(1).accepted, report.stats->by_position.at(1).accepted);
    EXPECT_EQ(read.stats->seconds.total, 2.5);
    ASSERT_EQ(read.stats->levels.size(), 2u);
    EXPECT_EQ(read.stats->levels[1].accepted, report.stats->levels[1].accepted);
}

TEST(Messages, ThatAreCutOrLengthenedAreRefused) {
    const std::vector<std::byte> whole = pack(Report{.stats = stats_of(1, 1), .busy_seconds = 4});
    for (std::size_t length = 0; length < whole.size(); ++length)
        EXPECT_THROW(unpack<Report>({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)}),
                     std::runtime_error)
            << length;
    std::vector<std::byte> longer = whole;
    longer.push_back({});
    EXPECT_THROW(unpack<Report>(longer), std::runtime_error);
}

} // namespace messages_test
