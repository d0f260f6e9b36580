// The golden checkpoints (make_golden.py) as loaded models, and short ways to run passes over them. For tests only.
#pragma once

#include "model/cpu/decoder.h"
#include "model/cpu/packed_matrix.h"
#include "model/families/read_config.h"
#include "model/torch/plugin.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft {

inline std::filesystem::path source_directory() {
    return ENTRODRAFT_SOURCE_DIR;
}

inline std::filesystem::path golden_directory(const std::string& name) {
    return source_directory() / "tests/model/golden" / name;
}

// What transformers and a float64 pass say of a golden checkpoint: see make_golden.py.
inline nlohmann::json golden_expectations(const std::string& name) {
    std::ifstream file(golden_directory("expected.json"));
    return nlohmann::json::parse(file).at(name);
}

inline std::unique_ptr<model::Decoder> load_on_torch(const model::Checkpoint& checkpoint,
                                                     const model::ModelConfig& config,
                                                     const model::DecoderOptions& options, dist::Communicator& tp,
                                                     model::ThreadTeam& team) {
    return model::torch::load_decoder(checkpoint, config, options, tp, {"cpu", team.size()});
}

// Whether ENTRODRAFT_TEST_BACKEND asks for ATen in place of our kernels: so the tests of the label torch run.
inline bool on_torch() {
    const char* backend = std::getenv("ENTRODRAFT_TEST_BACKEND");
    return backend != nullptr && std::string_view(backend) == "torch";
}

inline std::unique_ptr<model::Decoder> load_for_tests(const model::Checkpoint& checkpoint,
                                                      const model::ModelConfig& config,
                                                      const model::DecoderOptions& options, dist::Communicator& tp,
                                                      model::ThreadTeam& team) {
    return (on_torch() ? load_on_torch : model::load_cpu_decoder)(checkpoint, config, options, tp, team);
}

// For GTEST_SKIP() of a test that needs what torch does not promise or have; empty with our kernels.
inline std::string lacking_on_torch(const char* what) {
    return on_torch() ? std::string("the torch backend lacks ") + what : "";
}
inline constexpr const char* kRowBits = "rows whose bits do not depend on the rows beside them";

inline model::DecoderOptions as_exact_as_float32() {
    model::DecoderOptions options;
    options.activations = model::ActivationType::int24;
    options.kv_type = model::WeightType::float32;
    return options;
}

struct TestModelOptions {
    int threads = 1;
    int max_positions = 0;                        // 0: as the checkpoint says
    int max_context = 0;                          // --max-context; 0: none
    int max_source = 0;                           // of an encoder with relative positions; 0: as the checkpoint says
    std::vector<std::int64_t> eos_token_ids = {}; // empty: as the checkpoint says
    dist::Communicator* tp = nullptr;             // null: this rank alone
    model::DecoderOptions decoder = as_exact_as_float32();
    decltype(&model::load_cpu_decoder) load = &load_for_tests; // onto which device
    std::vector<int> windows = {};                             // of the layers; empty: as the checkpoint says
};

// A checkpoint loaded on this rank, with a team of its own.
class TestModel {
  public:
    explicit TestModel(const std::filesystem::path& directory, const TestModelOptions& options = {})
        : config(changed(model::read_config(directory), options)), team(options.threads),
          loaded(options.load(model::Checkpoint::open(directory), config, options.decoder,
                              options.tp ? *options.tp : self, team)),
          decoder(*loaded) {}

    // One pass; the logits of the rows asked for, [logit_rows][local vocabulary].
    std::vector<float> forward(std::span<const model::Row> rows, std::span<const int> logit_rows,
                               model::Mask mask = model::Mask::causal) {
        const model::PassResult result =
            decoder.forward({.rows = rows, .logit_rows = logit_rows, .hidden_layers = {}, .mask = mask});
        const auto width = static_cast<std::size_t>(decoder.local_vocab().size());
        std::vector<float> logits;
        for (std::size_t i = 0; i < logit_rows.size(); ++i) {
            const auto row = result.logits.subspan(i * result.logits_stride, width);
            logits.insert(logits.end(), row.begin(), row.end());
        }
        return logits;
    }

    // Appends `tokens` to a slot, `chunk` rows a pass, and returns the logits of them all.
    std::vector<float> read(std::span<const model::TokenId> tokens, int chunk = 128, int slot = 0) {
        std::vector<float> logits;
        for (std::size_t begin = 0; begin < tokens.size(); begin += static_cast<std::size_t>(chunk)) {
            const auto part = tokens.subspan(begin, std::min(tokens.size() - begin, static_cast<std::size_t>(chunk)));
            const std::vector<model::Row> rows = chain(part, slot);
            const std::vector<float> some = forward(rows, all_of(rows.size()));
            logits.insert(logits.end(), some.begin(), some.end());
        }
        return logits;
    }

    // Appends `tokens` to a slot as a prompt's chunks of at most `chunk` rows.
    void read_prompt(std::span<const model::TokenId> tokens, int slot = 0, int chunk = 0) {
        const auto most = static_cast<std::size_t>(chunk > 0 ? chunk : decoder.max_prompt_rows());
        for (std::size_t begin = 0; begin < tokens.size(); begin += most) {
            const std::vector<model::Row> rows =
                chain(tokens.subspan(begin, std::min(tokens.size() - begin, most)), slot);
            decoder.forward({.rows = rows, .logit_rows = {}, .hidden_layers = {}, .is_prompt = true});
        }
    }

    // Rows that continue a slot, each after the one before.
    std::vector<model::Row> chain(std::span<const model::TokenId> tokens, int slot = 0) {
        std::vector<model::Row> rows;
        const int begin = decoder.cache().length(slot);
        for (const model::TokenId token : tokens) {
            const int i = static_cast<int>(rows.size());
            rows.push_back({token, slot, begin + i, i - 1});
        }
        return rows;
    }

    static std::vector<int> all_of(std::size_t n_rows) {
        std::vector<int> rows;
        for (std::size_t i = 0; i < n_rows; ++i)
            rows.push_back(static_cast<int>(i));
        return rows;
    }

    void forget(int slot = 0) { decoder.cache().truncate(slot, 0); }

    // Greedy continuation of `prompt` from an empty slot, one row a pass. This rank alone.
    std::vector<model::TokenId> greedy(std::span<const model::TokenId> prompt, int n_tokens) {
        forget();
        std::vector<model::TokenId> said;
        std::vector<float> logits = read(prompt);
        while (static_cast<int>(said.size()) < n_tokens) {
            const auto last = logits.end() - config.vocab_size;
            said.push_back(static_cast<model::TokenId>(std::max_element(last, logits.end()) - last));
            logits = read({&said.back(), 1});
        }
        return said;
    }

    model::ModelConfig config;
    dist::SelfComm self;
    model::ThreadTeam team;
    std::unique_ptr<model::Decoder> loaded;
    model::Decoder& decoder;

  private:
    static model::ModelConfig changed(model::ModelConfig config, const TestModelOptions& options) {
        stretch_context(config, options.max_context);
        if (options.max_positions > 0) config.max_positions = options.max_positions;
        if (options.max_source > 0) config.encoder.max_positions = options.max_source;
        if (!options.windows.empty()) config.windows = options.windows;
        if (!options.eos_token_ids.empty()) config.eos_token_ids = options.eos_token_ids;
        return config;
    }
};

// max|a - b| / max|b|
inline double relative_difference(std::span<const float> a, std::span<const float> b) {
    EXPECT_EQ(a.size(), b.size());
    double difference = 0, largest = 0;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
        difference = std::max(difference, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
        largest = std::max(largest, std::fabs(static_cast<double>(b[i])));
        if (std::isnan(a[i]) != std::isnan(b[i])) return INFINITY;
    }
    return difference / largest;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// docs/promises.md, Exactness: how far float32 results of one row may lie apart across layouts and implementations.
inline constexpr double kRowBound = 1e-4;

// A text of plausible variety for a vocabulary of `vocab` tokens.
inline std::vector<model::TokenId> varied_tokens(int n, int vocab, int seed = 0) {
    std::vector<model::TokenId> tokens;
    for (int i = 0; i < n; ++i)
        tokens.push_back((i * i * 31 + i * 17 + seed * 97 + 5) % vocab);
    return tokens;
}

} // namespace entrodraft
