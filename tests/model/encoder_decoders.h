// The tiny encoder-decoder checkpoints (make_encoder_decoders.py) and what transformers says that they compute. For
// tests only.
#pragma once

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

inline EncoderDecoderGolden read_encoder_decoder(const std::filesystem::path& pair, const std::string& which) {
    EncoderDecoderGolden golden{read_family_golden(pair, which), {}};
    const auto expected = nlohmann::json::parse(std::ifstream(pair / "expected.json")).at(which).at("texts");
    for (std::size_t i = 0; i < golden.whole.texts.size(); ++i)
        golden.texts.push_back({expected.at(i).at("source"), golden.whole.texts[i]});
    return golden;
}

// Of every pair.
inline std::vector<EncoderDecoderGolden> encoder_decoder_goldens(std::initializer_list<const char*> models = {
                                                                     "target", "draft"}) {
    std::vector<EncoderDecoderGolden> goldens;
    for (const auto& pair : encoder_decoder_pairs())
        for (const char* which : models)
            goldens.push_back(read_encoder_decoder(pair, which));
    return goldens;
}

class EncoderDecoderTest : public testing::TestWithParam<EncoderDecoderGolden> {
  protected:
    const FamilyGolden& golden() const { return GetParam().whole; }
    const std::vector<SourceText>& texts() const { return GetParam().texts; }
};

inline std::string encoder_decoder_name(const testing::TestParamInfo<EncoderDecoderGolden>& info) {
    std::string name = info.param.whole.name();
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
    return name;
}

// A target and its draft, and what the target says.
struct EncoderDecoderPair {
    std::filesystem::path directory;
    EncoderDecoderGolden golden;
    explicit EncoderDecoderPair(const std::string& name)
        : directory(source_directory() / "tests/model/encoder_decoders" / name),
          golden(read_encoder_decoder(directory, "target")) {}
};

// Where the CPU's kernels promise equal bits of a row, and ATen does not.
inline bool same_rows(std::span<const float> a, std::span<const float> b) {
    return on_torch() ? relative_difference(a, b) <= kRowBound : same_bits(a, b);
}

// Banned tokens have no logits to compare.
inline void leave_out_banned(const model::ModelConfig& config, std::vector<float>& logits, FamilyText& text) {
    const auto vocab = static_cast<std::size_t>(config.vocab_size);
    for (const std::int64_t token : config.banned_token_ids) {
        for (std::size_t at = static_cast<std::size_t>(token); at < logits.size(); at += vocab)
            logits[at] = 0;
        for (std::vector<float>& row : text.rows)
            row[static_cast<std::size_t>(token)] = 0;
    }
}

} // namespace entrodraft
