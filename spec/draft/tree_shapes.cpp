// The shapes of trees by name, by widths and from files: see drafter.h.
#include "model/files/json_file.h"
#include "spec/draft/drafter.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

using Paths = std::vector<std::vector<int>>;

// Medusa's tree for Vicuna 7B (its medusa_choices mc_sim_7b_63), and EAGLE's of the same name.
const Paths kMedusa63 = {{0},       {0, 0},    {1},       {0, 1},    {2},          {0, 0, 0}, {1, 0},    {0, 2},
                         {3},       {0, 3},    {4},       {0, 4},    {2, 0},       {0, 5},    {0, 0, 1}, {5},
                         {0, 6},    {6},       {0, 7},    {0, 1, 0}, {1, 1},       {7},       {0, 8},    {0, 0, 2},
                         {3, 0},    {0, 9},    {8},       {9},       {1, 0, 0},    {0, 2, 0}, {1, 2},    {0, 0, 3},
                         {4, 0},    {2, 1},    {0, 0, 4}, {0, 0, 5}, {0, 0, 0, 0}, {0, 1, 1}, {0, 0, 6}, {0, 3, 0},
                         {5, 0},    {1, 3},    {0, 0, 7}, {0, 0, 8}, {0, 0, 9},    {6, 0},    {0, 4, 0}, {1, 4},
                         {7, 0},    {0, 1, 2}, {2, 0, 0}, {3, 1},    {2, 2},       {8, 0},    {0, 5, 0}, {1, 5},
                         {1, 0, 1}, {0, 2, 1}, {9, 0},    {0, 6, 0}, {0, 0, 0, 1}, {1, 6},    {0, 7, 0}};
const Paths kEagle25 = {{0},
                        {1},
                        {2},
                        {3},
                        {0, 0},
                        {0, 1},
                        {0, 2},
                        {1, 0},
                        {1, 1},
                        {2, 0},
                        {2, 1},
                        {3, 0},
                        {0, 0, 0},
                        {0, 0, 1},
                        {0, 0, 2},
                        {0, 1, 0},
                        {0, 1, 1},
                        {0, 2, 0},
                        {0, 2, 1},
                        {1, 0, 0},
                        {0, 0, 0, 0},
                        {0, 0, 0, 1},
                        {0, 0, 0, 2},
                        {0, 0, 0, 0, 0},
                        {0, 0, 0, 0, 1}};

// Every node of level i has widths[i] children.
Paths paths_of_widths(const std::vector<int>& widths) {
    Paths all;
    Paths level = {{}};
    for (const int width : widths) {
        Paths next;
        for (const std::vector<int>& path : level)
            for (int rank = 0; rank < width; ++rank) {
                next.push_back(path);
                next.back().push_back(rank);
            }
        all.insert(all.end(), next.begin(), next.end());
        if (all.size() > Packet::kMaxDraftTokens) return all; // refused below
        level = std::move(next);
    }
    return all;
}

// Empty: the paths are usable.
std::string why_no_tree(const Paths& paths) {
    if (paths.empty() || paths.size() > Packet::kMaxDraftTokens)
        return fmt::format("a tree has 1 to {} tokens, not {}", Packet::kMaxDraftTokens, paths.size());
    for (const std::vector<int>& path : paths) {
        const std::string name = fmt::format("[{}]", fmt::join(path, ", "));
        if (path.empty() || std::ranges::any_of(path, [](int rank) { return rank < 0 || rank > 127; }))
            return fmt::format("path {} is not a list of ranks from 0 to 127", name);
        if (std::ranges::count(paths, path) > 1) return fmt::format("path {} is there twice", name);
        std::vector<int> before = path; // its parent, or the sibling before it, must be there too
        if (path.back() > 0)
            --before.back();
        else
            before.pop_back();
        if (!before.empty() && std::ranges::find(paths, before) == paths.end())
            return fmt::format("path {} is there without [{}]", name, fmt::join(before, ", "));
    }
    return {};
}

int parse_count(const std::string& text, const std::string& what) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > Packet::kMaxDraftTokens)
        throw std::invalid_argument(
            fmt::format("{} is not a whole number from 1 to {}: '{}'", what, Packet::kMaxDraftTokens, text));
    return value;
}

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts(1);
    for (const char c : text)
        if (c == separator)
            parts.emplace_back();
        else
            parts.back() += c;
    return parts;
}

Paths read_paths(const std::string& file) {
    constexpr std::size_t kMaxBytes = 1 << 16;
    if (!model::file_exists(file))
        throw std::runtime_error(fmt::format("--tree {}: neither a tree's name nor a file; {}", file, kTreeNames));
    const nlohmann::json json = model::read_json_file(file, kMaxBytes);
    const auto is_rank = [](const nlohmann::json& rank) { return rank.is_number_unsigned() && rank <= 127U; };
    const auto is_path = [&](const nlohmann::json& path) {
        return path.is_array() && std::ranges::all_of(path, is_rank);
    };
    if (!json.is_array() || !std::ranges::all_of(json, is_path))
        throw std::runtime_error(fmt::format("--tree {}: not a JSON list of paths such as [[0], [0, 0], [1]]", file));
    return json.get<Paths>();
}

} // namespace

int TreeOptions::most_children() const {
    if (shape != Shape::fixed) return top_k;
    int most = 0;
    for (const std::vector<int>& path : paths)
        most = std::max(most, path.back() + 1);
    return most;
}

int TreeOptions::most_levels() const {
    if (shape != Shape::fixed) return depth;
    std::size_t most = 0;
    for (const std::vector<int>& path : paths)
        most = std::max(most, path.size());
    return static_cast<int>(most);
}

std::vector<std::int8_t> parents_of(const TreeOptions& tree) {
    Paths paths = tree.paths;
    std::ranges::sort(paths,
                      [](const auto& a, const auto& b) { return a.size() != b.size() ? a.size() < b.size() : a < b; });
    std::vector<std::int8_t> parents;
    for (const std::vector<int>& path : paths) {
        const std::vector<int> above(path.begin(), path.end() - 1);
        const auto parent = std::ranges::find(paths, above);
        parents.push_back(static_cast<std::int8_t>(above.empty() ? -1 : parent - paths.begin()));
    }
    return parents;
}

StopRuleOptions tree_rule(const TreeOptions& tree, int max_tokens) {
    const bool is_fixed = tree.shape == TreeOptions::Shape::fixed;
    StopRuleOptions rule(tree.shape == TreeOptions::Shape::expected_gain ? "expected-gain" : "constant");
    rule.max_tokens = is_fixed ? static_cast<int>(tree.paths.size()) : max_tokens;
    if (rule.takes("tokens")) rule.set("tokens", rule.max_tokens);
    return rule;
}

TreeOptions parse_tree(const std::string& text) {
    TreeOptions tree;
    tree.name = text;
    const std::vector<std::string> parts = split(text, ':');
    if (parts[0] == "expected-gain" || parts[0] == "eagle2") {
        if (parts.size() > 3) throw std::invalid_argument(fmt::format("--tree {}: at most :DEPTH:TOP_K", text));
        tree.shape = parts[0] == "eagle2" ? TreeOptions::Shape::eagle2 : TreeOptions::Shape::expected_gain;
        if (parts.size() > 1) tree.depth = parse_count(parts[1], "depth of --tree " + text);
        if (parts.size() > 2) tree.top_k = parse_count(parts[2], "top-k of --tree " + text);
        return tree;
    }
    tree.shape = TreeOptions::Shape::fixed;
    if (text == "medusa-63") {
        tree.paths = kMedusa63;
    } else if (text == "eagle-25") {
        tree.paths = kEagle25;
    } else if (!text.empty() && text.find_first_not_of("0123456789,") == std::string::npos) {
        std::vector<int> widths;
        for (const std::string& width : split(text, ','))
            widths.push_back(parse_count(width, "a width of --tree " + text));
        tree.paths = paths_of_widths(widths);
    } else {
        tree.paths = read_paths(text);
    }
    if (const std::string why = why_no_tree(tree.paths); !why.empty())
        throw std::invalid_argument(fmt::format("--tree {}: {}", text, why));
    return tree;
}

} // namespace entrodraft::spec
