// Reads the special tokens of a directory without tokenizer.json, from its other files. Makes the parts of a
// tokenizer.json that follow from them. Called by the readers of vocabulary files.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace entrodraft::model {

// The special tokens that the directory's files name.
struct SpecialTokens {
    std::map<std::string, nlohmann::json> named;              // bos_token and so on
    std::vector<nlohmann::json> extra;                        // additional ones, and named ones without a standard name
    std::vector<std::pair<std::int64_t, nlohmann::json>> ids; // tokens with the ids that the files give them
    bool add_bos = false, add_eos = false;
    bool add_prefix_space = false;
};

// Returns an added token as in tokenizer.json, from a string or an object with flags. `special_if_bare`: for a string.
nlohmann::json added_token(const nlohmann::json& value, bool special_if_bare, const std::string& what);

// Reads tokenizer_config.json and, if that has no added_tokens_decoder, special_tokens_map.json and added_tokens.json.
// `defaults`: tokens that a file need not name. Throws BadFile.
SpecialTokens read_special_tokens(const std::filesystem::path& directory,
                                  std::initializer_list<std::pair<const char*, std::string>> defaults);
// Returns the added_tokens list: tokens with ids, then named and extra ones. A token without an id in the files follows
// `vocab`, tokens by name.
nlohmann::json added_tokens_of(const SpecialTokens& tokens, const nlohmann::json& vocab);
// Returns a template with the tokens that are to be added.
nlohmann::json post_processor_of(const SpecialTokens& tokens, const nlohmann::json& added);

} // namespace entrodraft::model
