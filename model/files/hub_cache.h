// Finds a model in the cache of Hugging Face's tools: turns names into snapshot directories. It only looks at
// directories of this machine. It downloads nothing, and the caller passes the environment. Called by launch.
//
// Layout: CACHE/models--ORG--NAME/refs/main has a commit's hash; CACHE/models--ORG--NAME/snapshots/HASH has its files.
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

// Returns HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub, in the
// order of huggingface_hub. A leading ~ is the home. Empty where nothing is set.
std::filesystem::path hub_cache_directory(const HubEnvironment& environment);

// Returns whether it can be a model's name on the hub: NAME or ORG/NAME, by huggingface_hub's rules.
bool is_hub_name(std::string_view name);

// Returns the snapshot that refs/main names, or the newest where there is no refs/main; nothing if there is none.
// `name` must be a hub name. Throws BadFile where refs/main is malformed or names a missing snapshot.
std::optional<std::filesystem::path> find_in_hub_cache(const std::filesystem::path& cache, const std::string& name);

} // namespace entrodraft::model
