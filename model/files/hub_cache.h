// Where the cache of Hugging Face's tools keeps a model: names become snapshot directories. Looks at directories of
// this machine only; fetches nothing and reads no environment, which the caller passes in. Called by launch.
//
// Layout: CACHE/models--ORG--NAME/refs/main holds a commit's hash, CACHE/models--ORG--NAME/snapshots/HASH its files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace entrodraft::model {

// The environment's variables; an empty one counts as unset.
struct HubEnvironment {
    std::string hf_hub_cache;
    std::string hf_home;
    std::string xdg_cache_home;
    std::string home;
};

// HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub: the order of
// huggingface_hub. A leading ~ is the home. Empty where nothing is set.
std::filesystem::path hub_cache_directory(const HubEnvironment& environment);

// Whether it can be the name of a model on the hub: NAME or ORG/NAME, by huggingface_hub's rules.
bool is_hub_name(std::string_view name);

// The snapshot that refs/main names, or the newest where there is no refs/main; none where the cache holds none.
// `name` must be a hub name. Throws BadFile where refs/main is not as it should be or names what is not there.
std::optional<std::filesystem::path> find_in_hub_cache(const std::filesystem::path& cache, const std::string& name);

} // namespace entrodraft::model
