// The tiny encoder-decoder checkpoints (make_encoder_decoders.py) and what transformers says that they compute. For
// tests only.
#pragma once

#include "model/families/generation_config.h"
#include "model/families/read_config.h"
#include "tests/model/family_golden.h"

#include <fstream>
#include <string>
#include <vector>

namespace entrodraft {

struct SourceText {
    std::vector<model::TokenId> source;
    FamilyText text; // of the decoder
};

struct EncoderDecoderGolden {
    FamilyGolden whole; // texts are the decoders'
    std::vector<SourceText> texts;
};

inline std::vector<std::filesystem::path> encoder_decoder_pairs() {
    std::vector<std::filesystem::path> pairs;
    for (const auto& entry : std::filesystem::directory_iterator(source_directory() / "tests/model/encoder_decoders"))
        pairs.push_back(entry.path());
    std::sort(pairs.begin(), pairs.end());
    return pairs;
}

inline EncoderDecoderGolden read_encoder_decoder(const std::filesystem::path& model) {
    EncoderDecoderGolden golden{read_family_golden(model), {}};
    const auto expected = nlohmann::json::parse(std::ifstream(model.parent_path() / "expected.json"));
    const auto& texts = expected.at(model.filename().string()).at("texts");
    for (std::size_t i = 0; i < golden.whole.texts.size(); ++i)
        golden.texts.push_back({texts.at(i).at("source"), golden.whole.texts[i]});
    return golden;
}

inline std::vector<EncoderDecoderGolden> read_encoder_decoders(const ModelDirectories& models) {
    std::vector<EncoderDecoderGolden> goldens;
    for (const std::string& model : models)
        goldens.push_back(read_encoder_decoder(model));
    return goldens;
}

class EncoderDecoderTest : public testing::TestWithParam<std::string> {
  protected:
    const FamilyGolden& golden() const { return golden_.whole; }
    const std::vector<SourceText>& texts() const { return golden_.texts; }

  private:
    const EncoderDecoderGolden golden_ = read_encoder_decoder(GetParam());
};

// A target and its draft, and what the target says.
struct EncoderDecoderPair {
    std::filesystem::path directory;
    EncoderDecoderGolden golden;
    explicit EncoderDecoderPair(const std::string& name)
        : directory(source_directory() / "tests/model/encoder_decoders" / name),
          golden(read_encoder_decoder(directory / "target")) {}
};

// Where the CPU's kernels promise equal bits of a row, and ATen does not.
inline bool same_rows(std::span<const float> a, std::span<const float> b) {
    return on_torch() ? relative_difference(a, b) <= kRowBound : same_bits(a, b);
}

// Tokens that generation_config.json bans, as transformers does in generate() alone.
inline std::vector<model::TokenId> banned_tokens(const std::filesystem::path& directory) {
    std::vector<model::TokenId> tokens;
    for (const auto& word : model::read_generation_config(directory, model::read_config(directory)).bad_words)
        tokens.push_back(word.at(0));
    return tokens;
}
inline void ban_tokens(const FamilyGolden& golden, std::vector<float>& logits) {
    const std::size_t width = golden.texts.front().rows.front().size();
    for (const model::TokenId token : banned_tokens(golden.directory))
        for (auto at = static_cast<std::size_t>(token); at < logits.size(); at += width)
            logits[at] = -1e30f;
}

} // namespace entrodraft
