// See output_settings.h.
#include "launch/io/output_settings.h"

#include "launch/io/line_reader.h"
#include "launch/io/progress.h"
#include "launch/start/failure.h"
#include "launch/start/replaced_file.h"
#include "model/families/fields.h"

#include <charconv>
#include <filesystem>
#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

constexpr int kVersion = 1;
constexpr std::size_t kHexDigits = 16;

std::string line_of_hash(std::uint64_t hash) {
    return fmt::format("\"{:016x}\"\n", hash);
}

// Returns nothing if the line is torn, or if a power failure has damaged it.
std::optional<std::uint64_t> hash_of_line(const Line& line) {
    const std::string& text = line.text;
    if (!line.terminated || text.size() != kHexDigits + 2 || text.front() != '"' || text.back() != '"')
        return std::nullopt;
    std::uint64_t hash = 0;
    const auto [end, error] = std::from_chars(text.data() + 1, text.data() + 1 + kHexDigits, hash, 16);
    if (error != std::errc{} || end != text.data() + 1 + kHexDigits) return std::nullopt;
    return hash;
}

std::string shown(const Json& value) {
    return value.is_null() ? "none" : model::shown(value);
}

// Returns the setting from which a default of OpenAI's requests follows; else `name` itself.
std::string source_of(const std::string& name) {
    if (name == "openai_temperature") return "temperature";
    return name == "openai_max_tokens" ? "max_new_tokens" : name;
}

// Returns all differences: "temperature was 0, and is 1 now; ...".
std::string changes_between(const Json& earlier, const Json& now) {
    Json names = earlier;
    names.update(now);
    std::string changes;
    const auto differs = [&](const std::string& name) {
        return earlier.value(name, Json()) != now.value(name, Json());
    };
    for (const auto& [name, unused] : names.items()) {
        const std::string source = source_of(name);
        const bool is_named_by_source = source != name && differs(source);
        if (!differs(name) || is_named_by_source) continue;
        changes += fmt::format("{}{}{} was {}, and is {} now", changes.empty() ? "" : "; ", source,
                               source == name ? "" : " of OpenAI's requests", shown(earlier.value(name, Json())),
                               shown(now.value(name, Json())));
    }
    return changes;
}

} // namespace

OutputSettings::OutputSettings(const std::string& output)
    : output_(output), file_(std::filesystem::weakly_canonical(output).string() + ".settings") {
    require_replaceable(file_);
}

std::optional<OutputSettings::Earlier> OutputSettings::read_earlier() const {
    if (!std::filesystem::exists(file_)) return std::nullopt;
    LineReader lines(file_, SIZE_MAX);
    const auto first = lines.next();
    const Json head = first ? Json::parse(first->text, nullptr, false) : Json();
    if (!head.is_object() || !head.value("settings", Json()).is_object() || !head.contains("schema_version"))
        throw std::runtime_error(fmt::format("{} is no file of settings that this program wrote; move it, or name "
                                             "another --output",
                                             file_));
    Earlier earlier = {head["schema_version"], head["settings"], {}};
    while (const auto line = lines.next()) {
        const auto hash = hash_of_line(*line);
        if (!hash) break;
        earlier.lines.push_back(*hash);
    }
    return earlier;
}

std::vector<std::uint64_t> OutputSettings::compare(const Json& settings, std::size_t n_served,
                                                   const ResumeRules& rules) {
    settings_ = Json::parse(compact(settings)); // as they will be read later
    std::optional<Earlier> earlier = read_earlier();
    if (n_served == 0) return {};
    const auto warn = [&](const std::string& text) {
        if (!rules.quiet) log_line("warning: " + text);
    };
    if (!earlier) {
        warn(fmt::format("there is no {}: whether {} is of this model, these settings and these lines is not known",
                         file_, output_));
        return {};
    }
    if (earlier->version != kVersion)
        throw std::runtime_error(fmt::format("{} has version {}, and this program writes version {}; resume with the "
                                             "program of that run, or move the file",
                                             file_, compact(earlier->version), kVersion));
    const std::string changes = changes_between(earlier->settings, settings_);
    if (!changes.empty() && !rules.anyway)
        throw BadOption(fmt::format("--resume: {} was written with other settings: {}; give those of that run, name "
                                    "another --output, or give --resume-anyway too",
                                    output_, changes));
    if (!changes.empty()) warn(fmt::format("{} goes on with other settings: {}", output_, changes));
    if (rules.anyway) return {};
    if (earlier->lines.size() < n_served)
        warn(fmt::format("{} knows {} of the {} lines of {}: whether the others have changed is not known", file_,
                         earlier->lines.size(), n_served, output_));
    earlier->lines.resize(std::min(earlier->lines.size(), n_served));
    return std::move(earlier->lines);
}

void OutputSettings::begin(std::span<const std::uint64_t> served) {
    std::string text = compact({{"schema_version", kVersion}, {"settings", settings_}}) + "\n";
    for (const std::uint64_t hash : served)
        text += line_of_hash(hash);
    replace_file(file_, text);
    appended_.emplace(file_, Existing::append);
}

void OutputSettings::write_next() {
    appended_->write_text(line_of_hash(expected_.front()));
    expected_.pop_front();
}

} // namespace entrodraft::launch
