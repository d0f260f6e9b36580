// The tiny checkpoints of every family (make_families.py) and what transformers says that they compute. For tests only.
#pragma once

#include "dist/layout/shard.h"
#include "model/families/read_config.h"
#include "tests/model/golden_models.h"

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace entrodraft {

// How far int8 weights may move a row of logits, as a share of the largest: each weight is rounded to 127 steps of the
// largest in its row.
inline constexpr double kInt8Bound = 0.08;
// Of rows' distances the greatest or, where rounding may choose other experts for a row or turn a short key of linear
// attention, which is made of length 1, the median.
inline double distance_of(std::vector<double> of_rows, const model::ModelConfig& config) {
    std::ranges::sort(of_rows);
    return config.experts.n_experts > 0 || config.n_linear_layers() > 0 ? of_rows[of_rows.size() / 2] : of_rows.back();
}

// families/ and, where somebody has made more seeds, families-seed-K/ beside it.
inline std::vector<std::filesystem::path> family_roots() {
    std::vector<std::filesystem::path> roots = {source_directory() / "tests/model/families"};
    for (int seed = 1;; ++seed) {
        const std::filesystem::path root = roots.front().string() + "-seed-" + std::to_string(seed);
        if (!std::filesystem::exists(root)) return roots;
        roots.push_back(root);
    }
}

// The directories in them, each of a target and a draft, by name.
inline std::vector<std::filesystem::path> family_pairs() {
    std::vector<std::filesystem::path> pairs;
    for (const auto& root : family_roots())
        for (const auto& entry : std::filesystem::directory_iterator(root))
            if (entry.is_directory()) pairs.push_back(entry.path());
    std::sort(pairs.begin(), pairs.end());
    return pairs;
}

// Those that lack nothing: what_needs_cpu() for our kernels on GPUs, what_torch_lacks() for torch.
using Lacking = decltype(&model::what_needs_cpu);
inline std::vector<std::filesystem::path> family_pairs_without(Lacking lacking) {
    std::vector<std::filesystem::path> pairs = family_pairs();
    std::erase_if(pairs, [&](const auto& pair) { return !lacking(model::read_config(pair / "target")).empty(); });
    return pairs;
}

// Directories of models, which are the parameters of tests: hundreds of processes run a test each, and read its golden
// alone.
using ModelDirectories = std::vector<std::string>;
inline ModelDirectories models_of(const std::vector<std::filesystem::path>& pairs,
                                  std::initializer_list<const char*> of_pair = {"target", "draft"}) {
    ModelDirectories models;
    for (const auto& pair : pairs)
        for (const char* which : of_pair)
            models.push_back(pair / which);
    return models;
}
inline ModelDirectories family_models_without(Lacking lacking) {
    return models_of(family_pairs_without(lacking));
}
// Those that the tests' backend can run.
inline ModelDirectories family_models_here() {
    return on_torch() ? family_models_without(model::what_torch_lacks) : models_of(family_pairs());
}
// Quantised checkpoints (make_quantized.py).
inline ModelDirectories quantized_models() {
    ModelDirectories models;
    for (const auto& entry : std::filesystem::directory_iterator(source_directory() / "tests/model/quantized"))
        models.push_back(entry.path() / "target");
    std::ranges::sort(models);
    return models;
}
// For names of tests and messages.
inline std::string name_of_model(const std::filesystem::path& model) {
    const std::filesystem::path pair = model.parent_path();
    return pair.parent_path().filename().string() + "/" + pair.filename().string() + "/" + model.filename().string();
}

// A text, and what the model makes of it.
struct FamilyText {
    std::vector<model::TokenId> tokens;
    std::vector<model::TokenId> greedy;   // what follows, padding columns left out
    std::vector<std::size_t> positions;   // whose logits are kept
    std::vector<std::vector<float>> rows; // by position: [vocab]
};

// A target or a draft.
struct FamilyGolden {
    std::filesystem::path directory;
    int known = 0; // entries of the pair's tokenizer: columns beyond are padding
    std::int64_t parameters = 0;
    std::vector<FamilyText> texts;

    std::string name() const { return name_of_model(directory); }
};

inline FamilyGolden read_family_golden(const std::filesystem::path& model) {
    const std::filesystem::path pair = model.parent_path();
    const auto expected = nlohmann::json::parse(std::ifstream(pair / "expected.json"));
    const auto& of_model = expected.at(model.filename().string());
    FamilyGolden golden{model, expected.at("tokenizer_size"), of_model.at("parameters"), {}};
    std::size_t n_rows = 0;
    for (const auto& text : of_model.at("texts")) {
        golden.texts.push_back({text.at("tokens"), text.at("greedy"), text.at("positions"), {}});
        n_rows += golden.texts.back().positions.size();
    }
    const std::filesystem::path file = model.string() + ".logits";
    const std::size_t width = std::filesystem::file_size(file) / sizeof(float) / n_rows;
    std::ifstream logits(file, std::ios::binary);
    for (FamilyText& text : golden.texts) {
        for (std::size_t i = 0; i < text.positions.size(); ++i) {
            text.rows.emplace_back(width);
            logits.read(reinterpret_cast<char*>(text.rows.back().data()),
                        static_cast<std::streamsize>(width * sizeof(float)));
        }
    }
    if (!logits) throw std::runtime_error(file.string() + " is too short");
    return golden;
}

inline std::vector<FamilyGolden> read_family_goldens(const ModelDirectories& models) {
    std::vector<FamilyGolden> goldens;
    for (const std::string& model : models)
        goldens.push_back(read_family_golden(model));
    return goldens;
}

class FamilyGoldenTest : public testing::TestWithParam<std::string> {
  protected:
    const FamilyGolden& golden() const { return golden_; }

  private:
    const FamilyGolden golden_ = read_family_golden(GetParam());
};

inline std::string test_name(const testing::TestParamInfo<std::string>& model) {
    std::string name = name_of_model(model.param);
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
    return name;
}
// Of a quantised checkpoint.
inline std::string name_of_format(const testing::TestParamInfo<std::string>& model) {
    std::string name = std::filesystem::path(model.param).parent_path().filename();
    std::ranges::replace(name, '-', '_');
    return name;
}

inline model::TokenId best_of(std::span<const float> row, int known) {
    const auto end = row.begin() + known;
    return static_cast<model::TokenId>(std::max_element(row.begin(), end) - row.begin());
}

// The distances of the rows that the golden keeps from those of `logits`, [tokens][vocab].
inline std::vector<double> kept_row_distances(std::span<const float> logits, const FamilyText& text) {
    std::vector<double> distances;
    for (std::size_t i = 0; i < text.positions.size(); ++i) {
        const std::size_t width = text.rows[i].size(), begin = text.positions[i] * width;
        distances.push_back(
            logits.size() < begin + width ? INFINITY : relative_difference(logits.subspan(begin, width), text.rows[i]));
    }
    return distances;
}

// The greatest of them.
inline double worst_kept_row(std::span<const float> logits, const FamilyText& text) {
    return std::ranges::max(kept_row_distances(logits, text));
}

// What is said of each token of the golden's continuation by one pass over text and continuation, [tokens][vocab].
inline std::vector<model::TokenId> said_of(std::span<const float> logits, const FamilyText& text, int known) {
    std::vector<model::TokenId> said;
    const std::size_t width = text.rows.front().size();
    for (std::size_t i = 0; i < text.greedy.size(); ++i)
        said.push_back(best_of(logits.subspan((text.tokens.size() - 1 + i) * width, width), known));
    return said;
}

inline std::vector<model::TokenId> whole_text(const FamilyText& text) {
    std::vector<model::TokenId> tokens = text.tokens;
    tokens.insert(tokens.end(), text.greedy.begin(), text.greedy.end());
    return tokens;
}

} // namespace entrodraft
