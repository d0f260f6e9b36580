// What the tokenizer's tests share: fixtures, tokenizers out of JSON, and how a broken one is refused.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/files/bad_file.h"
#include "model/text/tokenizer/tokenizer.h"
#include "tests/model/temporary_directory.h"

namespace entrodraft::model {

// Made by tokenizer_differential.py --write-fixtures: tokenizer.json and expected.json of each.
inline const char* const kFamilies[] = {"gpt2",    "llama3",        "qwen2",  "neox",  "opt",    "falcon",
                                        "falcon3", "llama2-legacy", "llama2", "gemma", "t5-old", "t5-new"};

inline std::filesystem::path fixture(const std::string& family) {
    return std::filesystem::path(ENTRODRAFT_SOURCE_DIR) / "tests/model/tokenizers" / family;
}

inline nlohmann::json read(const std::filesystem::path& file) {
    std::ifstream in(file);
    return nlohmann::json::parse(in);
}

inline nlohmann::json fixture_json(const std::string& family) {
    return read(fixture(family) / "tokenizer.json");
}

// A text, its ids with the template's special tokens, and the text that these give without special tokens.
struct Expected {
    std::string text;
    std::vector<TokenId> ids;
    std::string decoded;
};

inline std::vector<Expected> expected_of(const std::string& family) {
    const nlohmann::json texts = read(fixture("strings.json")), cases = read(fixture(family) / "expected.json");
    std::vector<Expected> expected;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto text = texts[i].get<std::string>();
        const nlohmann::json& decoded = cases.at(i).at(1); // null: the text itself
        expected.push_back({text, cases.at(i).at(0).get<std::vector<TokenId>>(),
                            decoded.is_null() ? text : decoded.get<std::string>()});
    }
    return expected;
}

inline Tokenizer opened(const nlohmann::json& file) {
    const TemporaryDirectory directory;
    directory.write("tokenizer.json", file.dump());
    return Tokenizer::open(directory.path());
}

// The message with which a directory or a tokenizer.json is refused, or "" where it is accepted.
inline std::string refusal_of_directory(const std::filesystem::path& directory) {
    try {
        Tokenizer::open(directory);
    } catch (const BadFile& error) {
        return error.what();
    }
    return "";
}
inline std::string refusal_of_text(const std::string& text) {
    const TemporaryDirectory directory;
    directory.write("tokenizer.json", text);
    return refusal_of_directory(directory.path());
}
inline std::string refusal(const nlohmann::json& file) {
    return refusal_of_text(file.dump());
}

inline void expect_mentions(const std::string& message, const std::string& part) {
    EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' does not say '" << part << "'";
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

} // namespace entrodraft::model
