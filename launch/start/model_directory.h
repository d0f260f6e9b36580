// Which directory --target, --draft or --model means: one of this machine, or a snapshot in the local cache of Hugging
// Face's tools. Fetches nothing. Called by every command that opens a checkpoint or a tokenizer.
#pragma once

#include "model/files/hub_cache.h"

#include <array>
#include <filesystem>
#include <string>
#include <vector>

namespace entrodraft::launch {

// Names of the files that config, tokenizer and chat template are read from; not all are there.
inline constexpr std::array<const char*, 15> kSmallFiles = {
    "config.json", "generation_config.json",  "tokenizer.json",    "tokenizer_config.json", "vocab.json",
    "merges.txt",  "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",   "source.spm",
    "target.spm",  "target_vocab.json",       "tokenizer.model",   "tekken.json",           "qwen.tiktoken"};

// The directory `name` itself where there is one; else the snapshot of the model of that name. Throws BadOption
// with the option and, where a download would help, its command.
std::string resolve_model_directory(const std::string& name, const std::string& option,
                                    const model::HubEnvironment& environment);

// The same, with the variables HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME and HOME of this process.
std::string resolve_model_directory(const std::string& name, const std::string& option);

// The same of a checkpoint: there is a config.json in it.
std::string resolve_checkpoint_directory(const std::string& name, const std::string& option);

// Whether any file that a tokenizer may be read from is in the directory, readable or not.
bool has_tokenizer_files(const std::filesystem::path& directory);

// Paths of the files there that config, tokenizer, chat template or weights may be read from; none where there is no
// such model.
std::vector<std::string> files_of_model(const std::string& name);

} // namespace entrodraft::launch
