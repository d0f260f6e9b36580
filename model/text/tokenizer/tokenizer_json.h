// Reads the fields of a tokenizer.json. Each getter checks presence and type and throws BadFile with the component's
// name. Tokenizer::open adds the file's name before it. Called by the tokenizer's components.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "model/files/bad_file.h"
#include "model/files/utf8.h"

namespace entrodraft::model {

constexpr std::size_t kMaxSteps = 256;              // of one component, Sequences unrolled
constexpr std::size_t kMaxInsertedBytes = 256;      // text that a step may put in place of a character
constexpr int kMaxSequenceDepth = 16;               // of nested Sequence components
constexpr std::int64_t kMaxTokenId = 4'000'000 - 1; // a vocabulary beyond this counts as a broken file
constexpr std::size_t kMaxTokenBytes = 4096;        // so does a longer token: searching it takes time in its length

[[noreturn]] inline void throw_unsupported(const std::string& component, const std::string& type) {
    throw BadFile(component + " type " + in_quotes(type) + " is not supported");
}

// Returns the field's value, or null if it is missing.
inline const nlohmann::json& field(const nlohmann::json& object, const char* name) {
    static const nlohmann::json null;
    const auto found = object.find(name);
    return found == object.end() ? null : *found;
}

inline const std::string& string_field(const nlohmann::json& object, const char* name, const std::string& what) {
    const nlohmann::json& value = field(object, name);
    if (!value.is_string()) throw BadFile(what + ": '" + name + "' is missing or not a string");
    return value.get_ref<const std::string&>();
}

// Returns one character, as UTF-8.
inline const std::string& character_field(const nlohmann::json& object, const char* name, const std::string& what) {
    const std::string& text = string_field(object, name, what);
    if (text.empty() || code_point_at(text, 0).n_bytes != text.size()) {
        throw BadFile(what + ": '" + name + "' is " + in_quotes(text) + ", not one character");
    }
    return text;
}

inline bool bool_field(const nlohmann::json& object, const char* name, bool if_missing, const std::string& what) {
    const nlohmann::json& value = field(object, name);
    if (value.is_null()) return if_missing;
    if (!value.is_boolean()) throw BadFile(what + ": '" + name + "' is not true or false");
    return value.get<bool>();
}

inline const nlohmann::json& array_field(const nlohmann::json& object, const char* name, const std::string& what) {
    const nlohmann::json& value = field(object, name);
    if (!value.is_array()) throw BadFile(what + ": '" + name + "' is missing or not a list");
    return value;
}

inline const nlohmann::json& object_field(const nlohmann::json& object, const char* name, const std::string& what) {
    const nlohmann::json& value = field(object, name);
    if (!value.is_object()) throw BadFile(what + ": '" + name + "' is missing or not an object");
    return value;
}

// Returns a token id: whole, not negative, at most kMaxTokenId.
inline std::int32_t token_id(const nlohmann::json& value, const std::string& what) {
    const bool fits =
        value.is_number_unsigned() && value.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMaxTokenId);
    if (!fits) {
        throw BadFile(what + ": the id " + value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
                      " is not a whole number from 0 to " + std::to_string(kMaxTokenId));
    }
    return static_cast<std::int32_t>(value.get<std::uint64_t>());
}

// Refuses a token longer than kMaxTokenBytes.
inline void check_token_length(const std::string& token, const std::string& what) {
    if (token.size() <= kMaxTokenBytes) return;
    throw BadFile(what + ": the token " + in_quotes(token) + " has " + std::to_string(token.size()) +
                  " bytes, more than the " + std::to_string(kMaxTokenBytes) + " that a token may have");
}

// Returns the text that a step inserts, at most kMaxInsertedBytes.
inline const std::string& inserted_field(const nlohmann::json& object, const char* name, const std::string& what) {
    const std::string& text = string_field(object, name, what);
    if (text.size() > kMaxInsertedBytes) {
        throw BadFile(what + ": '" + name + "' has " + std::to_string(text.size()) + " bytes, more than the " +
                      std::to_string(kMaxInsertedBytes) + " that may be inserted");
    }
    return text;
}

// A step of a component, which is an object.
struct ComponentStep {
    const nlohmann::json& fields;
    const std::string& type;
    std::string what; // for messages: "normalizer NFC"
};

// Appends the steps of the component called `name`, none if it is null. The steps under a Sequence's `parts` take its
// place. Refuses Sequences nested beyond kMaxSequenceDepth and more than kMaxSteps steps.
inline void append_steps(const nlohmann::json& component, const std::string& name, const char* parts,
                         std::vector<ComponentStep>& steps, int depth = 0) {
    if (component.is_null() && depth == 0) return;
    if (depth > kMaxSequenceDepth) throw BadFile(name + ": Sequences are nested too deeply");
    if (!component.is_object()) throw BadFile(name + " is not an object");
    const std::string& type = string_field(component, "type", name);
    if (steps.size() >= kMaxSteps) throw BadFile(name + " has more than " + std::to_string(kMaxSteps) + " steps");
    if (type != "Sequence") return steps.push_back({component, type, name + " " + type});
    for (const auto& part : array_field(component, parts, name + " Sequence"))
        append_steps(part, name, parts, steps, depth + 1);
}

inline std::vector<ComponentStep> steps_of(const nlohmann::json& component, const std::string& name,
                                           const char* parts) {
    std::vector<ComponentStep> steps;
    append_steps(component, name, parts, steps);
    return steps;
}

// Makes the tokenizer.json of a directory without one, from GPT-2's and OPT's vocab.json and merges.txt. The special
// tokens are those that tokenizer_config.json, special_tokens_map.json and added_tokens.json name, as in transformers'
// GPT2Tokenizer. Throws BadFile, also where the directory has another kind of tokenizer, with the way to make a
// tokenizer.json of it. In vocabulary_files.cpp.
nlohmann::json tokenizer_from_vocabulary(const std::filesystem::path& directory);

} // namespace entrodraft::model
