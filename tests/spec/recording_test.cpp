// The contents of recordings. Their files hold them bit for bit, or reading says what is wrong.
#include "spec/replay/recording.h"

#include "tests/launch/scratch_file.h"
#include "tests/model/temporary_directory.h"
#include "tests/spec/recording_support.h"

#include "spec/replay/recorder.h"
#include "spec/replay/simulate.h"
#include "spec/verify/random.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace recording_test {

using namespace entrodraft;
using spec::DraftRecord;
using spec::TextRecord;

std::vector<spec::Request> requests(double temperature, int n_tokens = 24) {
    std::vector<spec::Request> all;
    for (const auto& prompt : std::vector<std::vector<spec::TokenId>>{{1, 2, 3}, {40, 12, 7, 9}}) {
        spec::Request request = request_of(prompt, n_tokens);
        request.sampling.temperature = temperature;
        request.sampling.seed = 3;
        all.push_back(request);
    }
    return all;
}

// The models' figures for the text, in double precision, from logits of passes over all of it.
struct Reference {
    std::vector<std::vector<double>> log_p; // [places][vocab]

    Reference(TestModel& model, const TextRecord& text, std::size_t vocab) {
        std::vector<spec::TokenId> tokens = text.prompt;
        tokens.insert(tokens.end(), text.token.begin(), text.token.end());
        model.forget();
        const std::vector<float> logits = model.read(tokens);
        const std::size_t width = static_cast<std::size_t>(model.config.vocab_size);
        for (std::size_t place = 0; place < text.places(); ++place) {
            const float* row = logits.data() + (text.prompt.size() - 1 + place) * width;
            double most = row[0], sum = 0;
            for (std::size_t i = 0; i < vocab; ++i)
                most = std::max(most, static_cast<double>(row[i]));
            for (std::size_t i = 0; i < vocab; ++i)
                sum += std::exp(static_cast<double>(row[i]) - most);
            std::vector<double>& to = log_p.emplace_back();
            for (std::size_t i = 0; i < vocab; ++i)
                to.push_back(static_cast<double>(row[i]) - most - std::log(sum));
        }
    }

    double entropy(std::size_t place) const { return cross(place, *this); }
    double cross(std::size_t place, const Reference& q) const {
        double sum = 0;
        for (std::size_t i = 0; i < log_p[place].size(); ++i)
            sum -= std::exp(log_p[place][i]) * q.log_p[place][i];
        return sum;
    }
    double overlap(std::size_t place, const Reference& q, double temperature) const {
        std::vector<double> a, b;
        double sum_a = 0, sum_b = 0, overlap = 0;
        for (std::size_t i = 0; i < log_p[place].size(); ++i) {
            sum_a += a.emplace_back(std::exp(log_p[place][i] / temperature));
            sum_b += b.emplace_back(std::exp(q.log_p[place][i] / temperature));
        }
        for (std::size_t i = 0; i < a.size(); ++i)
            overlap += std::min(a[i] / sum_a, b[i] / sum_b);
        return overlap;
    }
};

void expect_as_the_models_say(double temperature) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    const RecordedTexts recorded = record_texts(pair, requests(temperature), temperature > 0, 8);
    const auto vocab = static_cast<std::size_t>(pair.vocab_size());
    constexpr double kNear = 1e-4;
    for (const TextRecord& text : recorded.texts) {
        const Reference p(pair.target, text, vocab), q(pair.draft, text, vocab);
        const DraftRecord& draft = text.drafts[0];
        ASSERT_EQ(draft.places(), text.places());
        const spec::GumbelNoise noise(text.seed, 0);
        for (std::size_t place = 0; place < text.places(); ++place) {
            SCOPED_TRACE("place " + std::to_string(place));
            const auto said = static_cast<std::size_t>(text.token[place]);
            EXPECT_NEAR(text.target_entropy[place], p.entropy(place), kNear);
            EXPECT_NEAR(text.target_log_probability[place], p.log_p[place][said], kNear);
            EXPECT_NEAR(draft.entropy[place], q.entropy(place), kNear);
            EXPECT_NEAR(draft.log_probability[place], q.log_p[place][said], kNear);
            EXPECT_NEAR(draft.cross_entropy[place], p.cross(place, q), kNear);
            EXPECT_NEAR(draft.probability[place],
                        std::exp(q.log_p[place][static_cast<std::size_t>(draft.token[place])]), kNear);
            const bool matches = draft.token[place] == text.token[place];
            EXPECT_EQ(draft.rank[place] == 0, matches);
            EXPECT_EQ(draft.top_token[place * DraftRecord::kTop], draft.token[place]);
            if (temperature == 0)
                EXPECT_EQ(draft.overlap[place], matches ? 1 : 0);
            else
                EXPECT_NEAR(draft.overlap[place], p.overlap(place, q, temperature), kNear);
            // The ranking, by the values with which the draft chooses.
            std::vector<double> values = q.log_p[place];
            for (std::size_t i = 0; temperature > 0 && i < values.size(); ++i)
                values[i] =
                    values[i] / temperature + noise.at(text.prompt.size() + place, static_cast<spec::TokenId>(i));
            std::int32_t before = 0;
            for (const double value : values)
                before += value > values[said] + 1e-6 ? 1 : 0;
            EXPECT_NEAR(draft.rank[place], before, 1); // 1: neighbours within rounding
            std::sort(values.rbegin(), values.rend());
            EXPECT_NEAR(draft.margin[place], values[0] - values[1], 1e-3);
        }
    }
}

TEST(Recording, HoldsWhatTheModelsSayOfAGreedyText) {
    expect_as_the_models_say(0);
}

TEST(Recording, HoldsWhatTheModelsSayOfASampledText) {
    expect_as_the_models_say(0.8);
}

TEST(Recording, DoesNotDependOnHowManyChainsSharePasses) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    const auto sampled = requests(0.9, 40);
    const RecordedTexts few = record_texts(pair, sampled, true, 8, 2), many = record_texts(pair, sampled, true, 8, 20);
    for (std::size_t i = 0; i < few.texts.size(); ++i) {
        const DraftRecord &a = few.texts[i].drafts[0], &b = many.texts[i].drafts[0];
        EXPECT_GT(a.astray_token.size(), 20U);
        EXPECT_EQ(a.astray_token, b.astray_token);
        EXPECT_EQ(a.astray_entropy, b.astray_entropy);
        EXPECT_EQ(a.astray_probability, b.astray_probability);
        EXPECT_EQ(a.astray_margin, b.astray_margin);
    }
}

// ---- the file ----

std::string block_file(const std::vector<std::string>& blocks) {
    std::string bytes;
    for (const std::string& block : blocks)
        bytes += block;
    return bytes;
}

struct SmallRecording {
    spec::RecordingHead head;
    TextRecord text;

    SmallRecording() {
        TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
        RecordedTexts recorded = record_texts(pair, {requests(0.8).front()}, true, 6, 5, {"2,1"});
        head = recorded.head;
        text = recorded.texts.front();
        text.id = R"("a \u00e9")";
        head.input = "prompts.jsonl";
        head.environment = R"({"cpu":"x"})";
        head.costs[0].t_first_draft = 0.2;
        head.costs[0].t_round = 0.01;
    }
};

spec::Recording read(const std::string& bytes, bool may_be_torn = false) {
    const test::ScratchFile file(bytes);
    return spec::read_recording(file.path(), may_be_torn);
}

std::string why_refused(const std::string& bytes) {
    try {
        read(bytes);
    } catch (const std::exception& error) {
        return error.what();
    }
    return "";
}

TEST(Recording, ComesBackFromItsFileBitForBit) {
    const SmallRecording small;
    const spec::RecordedError error = {"7", "too long"};
    const spec::Recording recording =
        read(block_file({spec::pack(small.head), spec::pack(error), spec::pack(small.text)}));
    EXPECT_EQ(spec::pack(recording.head), spec::pack(small.head));
    ASSERT_EQ(recording.lines.size(), 2U);
    EXPECT_EQ(std::get<spec::RecordedError>(recording.lines[0]).error, "too long");
    ASSERT_EQ(recording.texts().size(), 1U);
    EXPECT_EQ(spec::pack(*recording.texts()[0]), spec::pack(small.text));
    EXPECT_EQ(recording.texts()[0]->drafts[0].entropy, small.text.drafts[0].entropy);
    EXPECT_EQ(recording.head.costs[0].t_round, 0.01);
}

TEST(Recording, OfOlderVersionsHasNoMargins) {
    SmallRecording small;
    EXPECT_TRUE(small.text.drafts[0].has_margins());
    spec::StopRuleOptions rule("expected-gain");
    rule.max_tokens = small.head.max_draft_tokens;
    const auto drafted_with_margins_of = [&](float margin) {
        for (float& each : small.text.drafts[0].margin)
            each = margin;
        const spec::Recording read_back = read(spec::pack(small.head) + spec::pack(small.text));
        spec::Replay replay(read_back.head, {spec::ReplayKind::rule, rule, 0, spec::Costs{0.2, {1, 1.2}}});
        return replay.replay(*read_back.texts()[0]).drafted;
    };
    EXPECT_LT(drafted_with_margins_of(0.01F), drafted_with_margins_of(10));
    small.text.drafts[0].astray_margin.clear();
    EXPECT_FALSE(small.text.drafts[0].has_margins());
    EXPECT_EQ(drafted_with_margins_of(0.01F), drafted_with_margins_of(10)) << "nobody looks at them";
}

TEST(Recording, ThatCannotBeLookedAtIsRefusedForTheSystemsReason) {
    const TemporaryDirectory directory;
    const auto loop = directory.path() / "loop.edr";
    std::filesystem::create_symlink(loop, loop);
    std::string why;
    try {
        spec::read_recording(loop.string(), false);
    } catch (const std::exception& error) {
        why = error.what();
    }
    EXPECT_EQ(why, loop.string() + ": cannot be opened: " + std::strerror(ELOOP));
}

TEST(Recording, EndsBeforeATornBlockWhereItIsToBeGoneOnWith) {
    const SmallRecording small;
    const std::string head = spec::pack(small.head), text = spec::pack(small.text);
    for (const std::size_t left : {std::size_t{1}, std::size_t{3}, std::size_t{11}, text.size() - 1}) {
        const std::string torn = head + text + text.substr(0, left);
        const spec::Recording recording = read(torn, true);
        EXPECT_EQ(recording.lines.size(), 1U);
        EXPECT_EQ(recording.whole_bytes, head.size() + text.size());
        EXPECT_NE(why_refused(torn).find("block 2: it is cut off"), std::string::npos) << why_refused(torn);
    }
    EXPECT_EQ(read("", true).whole_bytes, 0U);
}

TEST(Recording, RefusesWhatIsNoRecording) {
    const SmallRecording small;
    const std::string head = spec::pack(small.head), text = spec::pack(small.text);
    EXPECT_NE(why_refused("").find("empty"), std::string::npos);
    EXPECT_NE(why_refused("{\"id\": 1}\n").find("block 0: it does not begin"), std::string::npos);
    EXPECT_NE(why_refused(text).find("block 0: it is not the head"), std::string::npos);
    EXPECT_NE(why_refused(head + head).find("block 1"), std::string::npos);
    std::string flipped = head + text;
    flipped[head.size() + 40] = static_cast<char>(flipped[head.size() + 40] ^ 1);
    EXPECT_NE(why_refused(flipped).find("block 1: its checksum"), std::string::npos) << why_refused(flipped);
}

// A text whose columns do not match.
void expect_refused(const SmallRecording& small, const std::function<void(TextRecord&)>& change, const char* why) {
    TextRecord changed = small.text;
    change(changed);
    const std::string reason = why_refused(spec::pack(small.head) + spec::pack(changed));
    EXPECT_NE(reason.find(why), std::string::npos) << reason;
}

TEST(Recording, RefusesColumnsThatDoNotGoTogether) {
    const SmallRecording small;
    expect_refused(
        small, [](TextRecord& text) { text.target_margin.pop_back(); }, "columns of the target");
    expect_refused(
        small, [](TextRecord& text) { text.drafts[0].rank.pop_back(); }, "columns of a draft");
    expect_refused(
        small, [](TextRecord& text) { text.drafts[0].astray_length.push_back(1); }, "as many chains");
    expect_refused(
        small, [](TextRecord& text) { text.drafts[0].astray_token.pop_back(); }, "chains have another");
    expect_refused(
        small, [](TextRecord& text) { text.drafts[0].astray_margin.pop_back(); }, "chains have another");
    expect_refused(
        small, [](TextRecord& text) { text.drafts[0].astray_length[0] = 99; }, "a chain is longer");
    EXPECT_GT(small.text.drafts[0].tree_parent.size(), small.text.drafts[0].places());
    expect_refused(
        small, [](TextRecord& text) { text.drafts[0].tree_entropy.pop_back(); }, "columns of trees");
    expect_refused(
        small, [](TextRecord& text) { text.drafts[0].tree_probability.pop_back(); }, "another number of children");
    expect_refused(
        small, [](TextRecord& text) { text.drafts[0].tree_children.front() = -1; }, "fewer children than none");
    for (const std::int32_t parent : {-1, 1 << 20})
        expect_refused(
            small, [parent](TextRecord& text) { text.drafts[0].tree_parent.back() = parent; }, "follows none before");
    expect_refused(
        small, [](TextRecord& text) { text.drafts[0].tree_parent.front() = 0; }, "follows none before");
    expect_refused(
        small, [](TextRecord& text) { text.new_tokens = 10000; }, "fewer tokens");
    expect_refused(
        small, [](TextRecord& text) { text.pieces.pop_back(); }, "a piece for each");
    expect_refused(
        small, [](TextRecord& text) { text.prompt.clear(); }, "no prompt");
    expect_refused(
        small, [](TextRecord& text) { text.drafts.clear(); }, "column draft.0.token");
}

} // namespace recording_test
