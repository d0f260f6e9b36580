// The tokenizer of a directory without tokenizer.json: GPT-2's and OPT's vocab.json and merges.txt, with the special
// tokens that tokenizer_config.json, special_tokens_map.json and added_tokens.json name. Called by tokenizer.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>

namespace entrodraft::model {

// What the directory's tokenizer.json would hold, put together as transformers' GPT2Tokenizer does. Throws BadFile:
// also where the directory has another kind of tokenizer, with the way to make a tokenizer.json of it. Local.
nlohmann::json tokenizer_from_vocabulary(const std::filesystem::path& directory);

} // namespace entrodraft::model
