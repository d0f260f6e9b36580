// Finds the directory that --target, --draft or --model names: a directory of this machine, or a snapshot in the local
// cache of Hugging Face's tools. It downloads nothing. Called by every command that opens a checkpoint or a tokenizer.
#pragma once

#include "model/files/hub_cache.h"

#include <array>
#include <filesystem>
#include <string>
#include <vector>

namespace entrodraft::launch {

// Names of the files with config, tokenizer and chat template; a model has only some of them.
inline constexpr std::array<const char*, 15> kSmallFiles = {
    "config.json", "generation_config.json",  "tokenizer.json",    "tokenizer_config.json", "vocab.json",
    "merges.txt",  "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",   "source.spm",
    "target.spm",  "target_vocab.json",       "tokenizer.model",   "tekken.json",           "qwen.tiktoken"};

// Returns the directory `name` itself if it exists; else the snapshot of the model of that name. Throws BadOption with
// the option and, if a download would help, its command.
std::string resolve_model_directory(const std::string& name, const std::string& option,
                                    const model::HubEnvironment& environment);

// Does the same with this process's variables HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME and HOME.
std::string resolve_model_directory(const std::string& name, const std::string& option);

// Does the same for a checkpoint: the directory must have a config.json.
std::string resolve_checkpoint_directory(const std::string& name, const std::string& option);

// Returns whether the directory has any file that a tokenizer may be read from, readable or not.
bool has_tokenizer_files(const std::filesystem::path& directory);

// Returns the paths of the files there from which config, tokenizer, chat template or weights may be read; none if
// there is no such model.
std::vector<std::string> files_of_model(const std::string& name);

} // namespace entrodraft::launch
