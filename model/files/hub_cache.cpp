// See hub_cache.h.
#include "model/files/hub_cache.h"

#include "model/files/bad_file.h"
#include "model/files/json_file.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace entrodraft::model {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxPartBytes = 96; // in each part of a name, on the hub
constexpr std::size_t kMaxRefBytes = 4096;
constexpr std::string_view kHexDigits = "0123456789abcdef";

// Tests ASCII only, whatever the locale.
bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_part(std::string_view part) {
    return !part.empty() && part.size() <= kMaxPartBytes && is_word(part.front()) && is_word(part.back()) &&
           std::all_of(part.begin(), part.end(), [](char c) { return is_word(c) || c == '-' || c == '.'; });
}

fs::path with_home(const std::string& path, const std::string& home) {
    if (home.empty() || (path != "~" && !path.starts_with("~/"))) return path;
    return home + path.substr(1);
}

// Returns the directory with the latest time, which is that of the last file put into it; among equals, by name.
std::optional<fs::path> newest_snapshot(const fs::path& snapshots) {
    std::pair newest(fs::file_time_type::min(), fs::path()); // times may lie before the clock's zero
    std::error_code unused;
    for (const auto& entry : fs::directory_iterator(snapshots, unused)) {
        if (!entry.is_directory(unused)) continue;
        const auto time = entry.last_write_time(unused);
        newest = std::max(newest, std::pair(time, entry.path()));
    }
    if (newest.second.empty()) return std::nullopt;
    return newest.second;
}

} // namespace

fs::path hub_cache_directory(const HubEnvironment& environment) {
    const auto path = [&](const std::string& text) { return with_home(text, environment.home); };
    if (!environment.hf_hub_cache.empty()) return path(environment.hf_hub_cache);
    if (!environment.hf_home.empty()) return path(environment.hf_home) / "hub";
    if (!environment.xdg_cache_home.empty()) return path(environment.xdg_cache_home) / "huggingface" / "hub";
    if (!environment.home.empty()) return fs::path(environment.home) / ".cache" / "huggingface" / "hub";
    return {};
}

bool is_hub_name(std::string_view name) {
    const auto slash = name.find('/');
    const bool has_parts = slash == std::string_view::npos
                               ? is_part(name)
                               : is_part(name.substr(0, slash)) && is_part(name.substr(slash + 1));
    return has_parts && name.find("--") == std::string_view::npos && name.find("..") == std::string_view::npos &&
           !name.ends_with(".git");
}

std::optional<fs::path> find_in_hub_cache(const fs::path& cache, const std::string& name) {
    std::string folder = "models--" + name;
    if (const auto slash = folder.find('/'); slash != std::string::npos) folder.replace(slash, 1, "--");
    const fs::path model = cache / folder;
    const fs::path ref = model / "refs" / "main";
    std::error_code unused;
    if (!fs::exists(ref, unused)) return newest_snapshot(model / "snapshots");

    std::string hash = read_text_file(ref, kMaxRefBytes);
    hash.erase(hash.find_last_not_of(" \t\r\n") + 1);
    if (hash.empty() || hash.find_first_not_of(kHexDigits) != std::string::npos) {
        throw BadFile(ref.string() + ": " + in_quotes(hash) + " is not a commit's hash; repair it with hf download " +
                      name);
    }
    const fs::path snapshot = model / "snapshots" / hash;
    if (!fs::is_directory(snapshot, unused)) {
        throw BadFile(ref.string() + ": names the snapshot " + hash + ", which is not there; repair it with " +
                      "hf download " + name);
    }
    return snapshot;
}

} // namespace entrodraft::model
