// The tiny checkpoints of every family (make_families.py) and what transformers says that they compute. For tests only.
#pragma once

#include "dist/shard.h"
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

    // For names of tests and messages.
    std::string name() const {
        return directory.parent_path().parent_path().filename().string() + "/" +
               directory.parent_path().filename().string() + "/" + directory.filename().string();
    }
};

// For GoogleTest.
inline void PrintTo(const FamilyGolden& golden, std::ostream* out) {
    *out << golden.name();
}

inline FamilyGolden read_family_golden(const std::filesystem::path& pair, const std::string& which) {
    const auto expected = nlohmann::json::parse(std::ifstream(pair / "expected.json"));
    FamilyGolden golden{pair / which, expected.at("tokenizer_size"), expected.at(which).at("parameters"), {}};
    std::size_t n_rows = 0;
    for (const auto& text : expected.at(which).at("texts")) {
        golden.texts.push_back({text.at("tokens"), text.at("greedy"), text.at("positions"), {}});
        n_rows += golden.texts.back().positions.size();
    }
    const std::filesystem::path file = pair / (which + ".logits");
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

// Targets and drafts of all families and seeds.
inline std::vector<FamilyGolden> family_goldens() {
    std::vector<FamilyGolden> goldens;
    for (const auto& pair : family_pairs())
        for (const char* which : {"target", "draft"})
            goldens.push_back(read_family_golden(pair, which));
    return goldens;
}

// Of quantised checkpoints (make_quantized.py).
inline std::vector<FamilyGolden> quantized_goldens() {
    std::vector<FamilyGolden> goldens;
    for (const auto& entry : std::filesystem::directory_iterator(source_directory() / "tests/model/quantized"))
        goldens.push_back(read_family_golden(entry.path(), "target"));
    std::ranges::sort(goldens, {}, &FamilyGolden::directory);
    return goldens;
}

// Those that lack nothing: what_needs_cpu() for our kernels on GPUs, what_torch_lacks() for torch.
using Lacking = decltype(&model::what_needs_cpu);
inline std::vector<std::filesystem::path> family_pairs_without(Lacking lacking) {
    std::vector<std::filesystem::path> pairs;
    for (const auto& pair : family_pairs())
        if (lacking(model::read_config(pair / "target")).empty()) pairs.push_back(pair);
    return pairs;
}
inline std::vector<FamilyGolden> family_goldens_without(Lacking lacking) {
    std::vector<FamilyGolden> goldens;
    for (const FamilyGolden& golden : family_goldens())
        if (lacking(model::read_config(golden.directory)).empty()) goldens.push_back(golden);
    return goldens;
}

// Those that the tests' backend can run.
inline std::vector<FamilyGolden> family_goldens_here() {
    return on_torch() ? family_goldens_without(model::what_torch_lacks) : family_goldens();
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
