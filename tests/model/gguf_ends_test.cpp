// Which tokens end the texts of a GGUF file: by keys, by names, and what is taken out again.
#include "model/families/config.h"
#include "model/families/read_config.h"
#include "model/files/bad_file.h"
#include "model/files/gguf_ends.h"
#include "tests/model/gguf_bytes.h"
#include "tests/model/temporary_directory.h"

#include <gtest/gtest.h>

namespace entrodraft::model {
namespace gguf_ends_test {

using gguf_test::gguf;
using nlohmann::json;

// Of a vocabulary of twenty plain tokens and then these.
std::vector<std::uint64_t> ends_of(const std::vector<std::string>& names, const json& keys = json::object(),
                                   const char* kind = "gpt2") {
    json metadata = {{"general.architecture", "llama"}, {"tokenizer.ggml.model", kind}};
    for (int i = 0; i < 20; ++i)
        metadata["tokenizer.ggml.tokens"].push_back("t" + std::to_string(i));
    for (const std::string& name : names)
        metadata["tokenizer.ggml.tokens"].push_back(name);
    for (const auto& [name, id] : keys.items())
        metadata["tokenizer.ggml." + name + "_token_id"] = id;
    const GgufFile file{"model.gguf", metadata, {}};
    return gguf_end_tokens(GgufMetadata(file));
}

using Ids = std::vector<std::uint64_t>;

TEST(GgufEnds, AreThoseOfTheKeys) {
    EXPECT_EQ(ends_of({}, {{"eos", 7U}}), Ids{7});
    for (const char* key : {"eot", "eom", "fim_pad", "fim_rep", "fim_sep"})
        EXPECT_EQ(ends_of({}, {{"eos", 7U}, {key, 3U}}), (Ids{7, 3})) << key;
    for (const char* key : {"fim_pre", "fim_suf", "fim_mid", "bos", "pad", "unknown"})
        EXPECT_EQ(ends_of({}, {{"eos", 7U}, {key, 3U}}), Ids{7}) << key;
    EXPECT_EQ(ends_of({}, {{"eos", 7U}, {"eot", 20U}}), Ids{7}) << "of no token";
    EXPECT_THROW(ends_of({}, {{"eos", "seven"}}), BadFile);
}

TEST(GgufEnds, WithoutAKeyAreThoseOfTheFirstVocabularies) {
    EXPECT_EQ(ends_of({}), Ids{11});
    EXPECT_EQ(ends_of({}, {}, "llama"), Ids{2});
    EXPECT_EQ(ends_of({}, {{"eos", 20U}}, "llama"), Ids{2}) << "a key of no token";
    EXPECT_EQ(ends_of({}, {}, "bert"), Ids{});
}

TEST(GgufEnds, AreThoseOfTheNames) {
    for (const char* name : {"<|eot_id|>",
                             "<|im_end|>",
                             "<|end|>",
                             "<|return|>",
                             "<|call|>",
                             "<|flush|>",
                             "<|calls|>",
                             "<end_of_turn>",
                             "<|endoftext|>",
                             "</s>",
                             "<|eom_id|>",
                             "<EOT>",
                             "_<EOT>",
                             "[EOT]",
                             "[EOS]",
                             "<|end_of_text|>",
                             "<end_of_utterance>",
                             "<eos>",
                             "<turn|>",
                             "<|tool_response>",
                             "<｜end▁of▁sentence｜>",
                             "[e~[",
                             "<|fim_pad|>",
                             "<fim-pad>",
                             "<fim_pad>",
                             "<PAD>",
                             "[PAD]",
                             "<|fim_repo|>",
                             "<|repo_name|>",
                             "<fim-repo>",
                             "<REPO>",
                             "<reponame>",
                             "<|file_sep|>"})
        EXPECT_EQ(ends_of({name}, {{"eos", 7U}}), (Ids{7, 20})) << name;
    for (const char* name : {"<|fim_prefix|>", "<|im_start|>", "<pad>", "<|endoftext", "<s>", "<|plamo:eos|>"})
        EXPECT_EQ(ends_of({name}, {{"eos", 7U}}), Ids{7}) << name;
    EXPECT_EQ(ends_of({"<|im_end|>", "x", "<|endoftext|>"}, {{"eos", 22U}}), (Ids{22, 20})) << "eos comes first";
    EXPECT_EQ(ends_of({"[PAD]", "<|fim_pad|>"}, {{"eos", 7U}}), (Ids{7, 21})) << "one mark of a kind";
    EXPECT_EQ(ends_of({"[PAD]", "<|fim_pad|>"}, {{"eos", 7U}, {"fim_pad", 4U}}), (Ids{7, 4}))
        << "the key's before names";
}

TEST(GgufEnds, LeaveOutWhatEndsNoTextThere) {
    EXPECT_EQ(ends_of({"<|end|>", "<|return|>", "<|call|>"}, {{"eos", 21U}}), (Ids{21, 22})) << "gpt-oss";
    EXPECT_EQ(ends_of({"<|end|>", "<|flush|>", "<|calls|>"}, {{"eos", 21U}}), (Ids{21, 22}));
    EXPECT_EQ(ends_of({"<|end|>", "<|return|>"}, {{"eos", 21U}}), (Ids{21, 20}));
    EXPECT_EQ(ends_of({"<|end|>", "<|call|>"}, {{"eos", 21U}}), (Ids{21, 20}));
    EXPECT_EQ(ends_of({"</s>", "<|tool_response>"}, {{"eos", 7U}}), (Ids{7, 21}));
    EXPECT_EQ(ends_of({"</s>", "<|plamo:eos|>"}, {{"eos", 21U}}), Ids{21});
    EXPECT_EQ(ends_of({"</s>", "<|plamo:eos|>"}, {{"eos", 7U}}), (Ids{7, 20})) << "a name alone";
}

// In the config, of which generation and inspect take them.
TEST(GgufEnds, AreTheConfigs) {
    json metadata = {{"general.architecture", "llama"},
                     {"llama.embedding_length", 32U},
                     {"llama.feed_forward_length", 32U},
                     {"llama.block_count", 1U},
                     {"llama.attention.head_count", 2U},
                     {"llama.context_length", 64U},
                     {"llama.attention.layer_norm_rms_epsilon", 1e-5},
                     {"tokenizer.ggml.model", "llama"},
                     {"tokenizer.ggml.tokens", {"a", "<end_of_turn>", "b", "<eos>"}},
                     {"tokenizer.ggml.eos_token_id", 3U}};
    const TemporaryDirectory directory;
    const auto file = directory.write("model.gguf", gguf(metadata, {{"token_embd.weight", {32, 4}, 0, 0}}, 512));
    EXPECT_EQ(read_config(file).eos_token_ids, (std::vector<std::int64_t>{3, 1}));
}

} // namespace gguf_ends_test
} // namespace entrodraft::model
