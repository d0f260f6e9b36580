// Reads files of input lines: see requests.h. request_fields.cpp reads the fields of a line.
#include "launch/io/requests.h"

#include "launch/io/json_line.h"
#include "launch/io/openai_batch.h"
#include "spec/verify/random.h"

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

bool is_blank(const Line& line) {
    return !line.too_long && line.text.find_first_not_of(" \t\r") == std::string::npos;
}

// Returns the id that parse_request() would give the line; nothing if it finds none.
std::optional<std::string> id_of_line(const Line& line, std::int64_t number, InputFormat format) {
    if (line.too_long || is_blank(line)) return std::nullopt;
    try {
        const Json object = parse_json_line(line.text);
        if (format == InputFormat::openai) return compact(object.at("custom_id"));
        return id_in(line.text, object, number);
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

// Returns the first line of a piece. Pieces differ in length by at most one line.
std::int64_t piece_begin(std::int64_t lines, std::int64_t index, std::int64_t of) {
    return lines / of * index + lines % of * index / of;
}

std::int64_t count_lines(const LineReader& of) {
    if (of.file_bytes() == 0) return 0;
    LineReader lines(of.file());
    std::int64_t count = 0;
    while (lines.next())
        ++count;
    if (lines.interrupted()) throw std::runtime_error(of.file() + ": reading was interrupted");
    return count;
}

} // namespace

std::uint64_t hash_of_id(const std::string& id, std::uint64_t seed) {
    return spec::hash_bytes(id.data(), id.size(), seed);
}

const std::string& id_of(const InputItem& item) {
    if (const auto* request = std::get_if<spec::Request>(&item)) return request->id;
    return std::get<BadLine>(item).id;
}

std::optional<InputItem> RequestReader::next() {
    while (!end_ || number_ < *end_) {
        const std::optional<Line> line = lines_.next();
        if (!line) return std::nullopt;
        ++number_;
        if (is_blank(*line)) continue;
        find_format(*line);
        const std::string_view text = std::string_view(line->text).substr(0, line->text.find_last_not_of(" \t\r") + 1);
        line_hash_ = spec::hash_bytes(text.data(), text.size());
        InputItem item = parse_request(*line, number_, defaults_, limits_);
        if (const auto* request = std::get_if<spec::Request>(&item))
            any_samples_ = any_samples_ || !request->sampling.greedy();
        const auto* bad = std::get_if<BadLine>(&item);
        if (bad != nullptr && bad->line) return item; // there is no id that could be a repeated one
        const std::string& id = id_of(item);
        if (!note_id(id))
            return BadLine{id, std::nullopt, "id " + id.substr(0, 200) + " was used by an earlier line",
                           defaults_.format == InputFormat::openai};
        return item;
    }
    return std::nullopt;
}

// The first line that is an object decides the format.
void RequestReader::find_format(const Line& line) {
    if (defaults_.format != InputFormat::found || line.too_long) return;
    try {
        const bool is_openai = defaults_.has_results && is_openai_request(parse_json_line(line.text));
        defaults_.format = is_openai ? InputFormat::openai : InputFormat::lines;
    } catch (const std::runtime_error&) { // the error of this line is reported when the line is read
    }
}

// Returns whether the id is new.
bool RequestReader::note_id(const std::string& id) {
    return seen_.emplace(hash_of_id(id), hash_of_id(id, 1)).second;
}

void RequestReader::keep(const InputShard& shard) {
    if (!lines_.is_plain_file())
        throw std::runtime_error(lines_.file() + ": --shard needs a plain file, which can be read twice");
    const std::int64_t lines = count_lines(lines_);
    first_ = piece_begin(lines, shard.index, shard.of);
    end_ = piece_begin(lines, shard.index + 1, shard.of);
    while (number_ < first_) {
        const std::optional<Line> line = lines_.next();
        if (!line) throw std::runtime_error(lines_.file() + ": became shorter, or reading was interrupted");
        ++number_;
        find_format(*line);
        if (const auto id = id_of_line(*line, number_, defaults_.format)) note_id(*id);
    }
}

double RequestReader::fraction() const {
    const auto share_of = [](auto part, auto whole) {
        return whole == 0 ? -1.0 : static_cast<double>(part) / static_cast<double>(whole);
    };
    if (end_) return share_of(number_ - first_, *end_ - first_);
    return share_of(lines_.bytes_read(), lines_.file_bytes());
}

std::vector<spec::Request> read_all_prompts(const std::string& file, const RequestDefaults& defaults, int max_prompts,
                                            const PromptLimits& limits) {
    std::vector<spec::Request> prompts;
    RequestReader reader(file, defaults, limits);
    while (auto item = reader.next()) {
        if (const auto* bad = std::get_if<BadLine>(&*item))
            throw std::runtime_error(fmt::format("{} line {}: {}", file, reader.last_number(), bad->error));
        prompts.push_back(std::get<spec::Request>(std::move(*item)));
        if (max_prompts > 0 && std::ssize(prompts) == max_prompts) break;
    }
    if (prompts.empty()) throw std::runtime_error(file + ": holds no prompts");
    return prompts;
}

} // namespace entrodraft::launch
