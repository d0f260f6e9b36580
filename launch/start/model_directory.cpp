// See model_directory.h.
#include "launch/start/model_directory.h"

#include "launch/start/failure.h"
#include "model/files/gguf_file.h"
#include "model/files/json_file.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <system_error>

namespace entrodraft::launch {

namespace {

std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

// Returns whether model/ opens files of this name.
bool is_of_a_model(const std::string& file) {
    return std::count(kSmallFiles.begin(), kSmallFiles.end(), file) > 0 || file == "model.safetensors.index.json" ||
           file.ends_with(".safetensors") || file.ends_with(".gguf") || file.starts_with("pytorch_model");
}

} // namespace

std::string resolve_model_directory(const std::string& name, const std::string& option,
                                    const model::HubEnvironment& environment) {
    std::error_code ignored; // a path that cannot be looked at counts as missing
    const std::string what = option + " " + name + ": ";
    if (std::filesystem::is_directory(name, ignored) || model::gguf_file_of(name)) return name;
    if (std::filesystem::exists(name, ignored))
        throw BadOption(what + "is not a directory; name the one that holds config.json, tokenizer and weights");
    const bool is_hub_name = model::is_hub_name(name);
    const std::filesystem::path cache = model::hub_cache_directory(environment);
    if (is_hub_name && !cache.empty())
        if (const auto found = model::find_in_hub_cache(cache, name)) return found->string();
    if (name.ends_with(".gguf"))
        throw BadOption(what + "there is no such file; name a GGUF file, or the directory that holds config.json, "
                               "tokenizer and weights");
    if (!is_hub_name)
        throw BadOption(what + "does not exist; name the directory that holds config.json, tokenizer and weights, or a "
                               "model of the Hugging Face hub that was downloaded");
    if (cache.empty())
        throw BadOption(what + "does not exist, and where the Hugging Face cache lies is not known; set HF_HOME");
    throw BadOption(
        fmt::format("{}is not a directory here, and the Hugging Face cache {} does not hold it; to download "
                    "it: hf download {}",
                    what, cache.string(), name));
}

std::string resolve_checkpoint_directory(const std::string& name, const std::string& option) {
    std::string directory = resolve_model_directory(name, option);
    if (model::gguf_file_of(directory)) return directory;
    std::error_code ignored; // the reader of the file reports other errors
    if (std::filesystem::status(std::filesystem::path(directory) / "config.json", ignored).type() ==
        std::filesystem::file_type::not_found)
        throw BadOption(
            fmt::format("{} {}: {}holds no config.json; name a directory with config.json, tokenizer and weights",
                        option, name, directory == name ? "" : directory + " "));
    return directory;
}

std::string resolve_model_directory(const std::string& name, const std::string& option) {
    return resolve_model_directory(
        name, option, {variable("HF_HUB_CACHE"), variable("HF_HOME"), variable("XDG_CACHE_HOME"), variable("HOME")});
}

bool has_tokenizer_files(const std::filesystem::path& directory) {
    const auto names = {"tokenizer.json",  "vocab.json",  "merges.txt",
                        "tokenizer.model", "tekken.json", "qwen.tiktoken"};
    if (const auto gguf = model::gguf_file_of(directory))
        return model::open_gguf(*gguf).metadata.contains("tokenizer.ggml.model");
    return std::any_of(names.begin(), names.end(),
                       [&](const char* name) { return model::file_exists(directory / name); });
}

std::vector<std::string> files_of_model(const std::string& name) {
    std::string directory;
    try {
        directory = resolve_model_directory(name, "");
    } catch (const BadOption&) { // the code that opens the model reports this
        return {};
    }
    std::vector<std::string> files;
    if (const auto gguf = model::gguf_file_of(directory)) {
        for (const auto& part : model::gguf_parts(*gguf))
            files.push_back(part.string());
        return files;
    }
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(directory, ignored))
        if (is_of_a_model(entry.path().filename())) files.push_back(entry.path());
    return files;
}

} // namespace entrodraft::launch
