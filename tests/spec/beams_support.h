// The results of transformers' beam search (beams_golden.json), as requests and expected texts. For tests only.
#pragma once

#include "model/families/read_config.h"
#include "spec/beams/beam_tree.h"
#include "tests/model/encoder_decoders.h"
#include "tests/spec/ranks.h"

#include <string>
#include <vector>

namespace entrodraft {

inline constexpr int kMostBeams = 8;
inline constexpr float kScoreTolerance = 2e-4F; // for a sum of up to 12 log-probabilities

struct GoldenBeams {
    spec::Request request;
    std::vector<spec::FoundText> found; // the best first
    std::string name;
};

struct GoldenBeamModel {
    std::filesystem::path directory; // of target and draft
    std::vector<std::int64_t> eos;
    std::vector<std::vector<GoldenBeams>> cases; // [case][prompt]
};

inline spec::EarlyStopping early_stopping_of(const nlohmann::json& value) {
    if (value.is_string()) return spec::EarlyStopping::never;
    return value.get<bool>() ? spec::EarlyStopping::yes : spec::EarlyStopping::no;
}

inline GoldenBeams golden_beams(const nlohmann::json& golden, const nlohmann::json& model, const nlohmann::json& one,
                                std::size_t i) {
    GoldenBeams made;
    const nlohmann::json& prompt = model.at("prompts").at(i);
    made.request = request_of(prompt.at("tokens").get<std::vector<TokenId>>(), golden.at("max_new_tokens"));
    made.request.source = prompt.value("source", std::vector<TokenId>());
    const nlohmann::json& numbers = one.at("found").at(i); // text, score, text, score, ...
    made.request.beams = {one.at("num_beams"), one.at("length_penalty"), early_stopping_of(one.at("early_stopping")),
                          static_cast<int>(numbers.size() / 2)};
    if (one.value("forced_bos", false))
        made.request.beams.forced_tokens = static_cast<int>(made.request.prompt.size()) - 1;
    made.request.processing.repetition_penalty = one.value("repetition_penalty", 1.0);
    made.request.processing.no_repeat_ngram_size = one.value("no_repeat_ngram_size", 0);
    made.request.processing.min_new_tokens = one.value("min_new_tokens", 0);
    made.request.processing.logit_bias = one.value("logit_bias", std::vector<std::pair<TokenId, float>>());
    for (std::size_t k = 0; k < numbers.size(); k += 2)
        made.found.push_back({model.at("texts").at(numbers[k].get<std::size_t>()), {}, {}, numbers[k + 1]});
    nlohmann::json settings = one;
    settings.erase("found");
    made.name = settings.dump() + ", prompt " + std::to_string(i);
    return made;
}

// Every `step`-th case.
inline std::vector<GoldenBeamModel> golden_beam_models(std::size_t step = 1) {
    const auto golden = nlohmann::json::parse(std::ifstream(source_directory() / "tests/spec/beams_golden.json"));
    std::vector<GoldenBeamModel> models;
    for (const auto& model : golden.at("models")) {
        GoldenBeamModel made;
        made.directory = source_directory() / "tests/model" / model.at("directory").get<std::string>();
        made.eos = model.at("eos").get<std::vector<std::int64_t>>();
        const std::vector<TokenId> banned = banned_tokens(made.directory / "target");
        for (std::size_t c = 0; c < model.at("cases").size(); c += step) {
            std::vector<GoldenBeams>& all = made.cases.emplace_back();
            for (std::size_t i = 0; i < model.at("prompts").size(); ++i) {
                all.push_back(golden_beams(golden, model, model.at("cases")[c], i));
                all.back().request.processing.banned_tokens = banned;
            }
        }
        models.push_back(std::move(made));
    }
    return models;
}

inline TestModelOptions beam_options(TestModelOptions options, const GoldenBeamModel& model, int n_slots) {
    options.eos_token_ids = model.eos;
    options.decoder.n_slots = n_slots;
    options.decoder.tree_positions =
        spec::tree_positions(kMostBeams, model::read_config(model.directory / "target").max_positions);
    return options;
}

inline RunOptions beam_run(int n_slots) {
    RunOptions run;
    run.n_slots = n_slots;
    run.num_beams = kMostBeams;
    return run;
}

inline std::vector<spec::Request> requests_of(const std::vector<GoldenBeams>& all) {
    std::vector<spec::Request> requests;
    for (const GoldenBeams& one : all)
        requests.push_back(one.request);
    return requests;
}

inline void expect_found(const std::vector<spec::FoundText>& found, const std::vector<spec::FoundText>& expected,
                         float tolerance, const std::string& what) {
    EXPECT_EQ(found.size(), expected.size()) << what;
    for (std::size_t k = 0; k < std::min(found.size(), expected.size()); ++k) {
        EXPECT_EQ(found[k].tokens, expected[k].tokens) << what << ", text " << k;
        EXPECT_NEAR(found[k].score, expected[k].score, tolerance) << what << ", text " << k;
    }
}

// Costs of passes: next to nothing, so that drafts are long, or as on a CPU.
inline spec::Costs costs_of_rows(double draft, double row) {
    spec::Costs costs{draft, {}};
    for (int rows = 1; rows <= model::Decoder::kMaxRows; ++rows)
        costs.t_target.push_back(1 + row * (rows - 1));
    return costs;
}

struct BeamCounts {
    std::int64_t rounds = 0, plain_rounds = 0, drafted = 0, accepted = 0;
};

// Expects the same texts, scores and order, to the bit except with torch, whose rows depend on the rows next to them.
inline void expect_same_beams(const std::vector<spec::Completion>& drafted, const std::vector<spec::Completion>& plain,
                              const std::vector<GoldenBeams>& cases, BeamCounts& counts) {
    EXPECT_EQ(drafted.size(), plain.size());
    for (std::size_t i = 0; i < std::min(drafted.size(), plain.size()); ++i) {
        expect_found(drafted[i].found, plain[i].found, on_torch() ? kScoreTolerance : 0, cases[i].name);
        counts.rounds += drafted[i].stats.rounds;
        counts.plain_rounds += plain[i].stats.rounds;
        counts.drafted += drafted[i].stats.drafted_levels;
        counts.accepted += drafted[i].stats.accepted;
    }
}

inline void expect_saved_rounds(const BeamCounts& counts) {
    EXPECT_GT(counts.accepted, 0);
    EXPECT_LT(counts.accepted, counts.drafted);
    EXPECT_EQ(counts.rounds + counts.accepted, counts.plain_rounds) << "an accepted level saves a round";
}

} // namespace entrodraft
