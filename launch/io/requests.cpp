// Input lines turned into requests: see requests.h.
#include "launch/io/requests.h"

#include "launch/io/chat.h"
#include "launch/io/request_fields.h"
#include "model/checkpoint/json_object.h"
#include "spec/verify/random.h"

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

std::uint64_t hash_of(const std::string& text, std::uint64_t seed = 0) {
    return spec::hash_bytes(text.data(), text.size(), seed);
}

// "--top-p must be ..." in terms of a line: "top_p must be ...".
std::string as_field(std::string why) {
    for (std::size_t at = why.find("--"); at != std::string::npos; at = why.find("--", at)) {
        why.erase(at, 2);
        const std::size_t end = std::min(why.find_first_of(" ,.;:", at), why.size());
        std::replace(why.begin() + static_cast<std::ptrdiff_t>(at), why.begin() + static_cast<std::ptrdiff_t>(end), '-',
                     '_');
        at = end;
    }
    return why;
}

// Sampling as transformers asks for it has to be what temperature says.
void check_do_sample(const Json& value, const spec::SamplingOptions& sampling) {
    if (value.is_null()) return;
    if (const bool samples = model::truth_of(value, "do_sample"); samples == sampling.greedy())
        throw std::runtime_error(samples ? "do_sample is true at temperature 0; give a temperature above 0"
                                         : "do_sample is false at a temperature above 0; give temperature 0");
}

void apply_overrides(const Json& object, spec::Request& request, int vocab_size) {
    set_fields(object, request);
    if (object.contains("do_sample")) check_do_sample(object["do_sample"], request.sampling);
    if (const char* why = spec::why_invalid(request.sampling); *why != '\0') throw std::runtime_error(as_field(why));
    if (const std::string why = spec::why_invalid(request.processing, vocab_size); !why.empty())
        throw std::runtime_error(as_field(why));
}

// What needs text cannot be served by a model without a tokenizer.
void require_text(const PromptLimits& limits, const char* field) {
    if (!limits.encode)
        throw std::runtime_error(std::string(field) + " cannot be served: the target has no tokenizer; give "
                                                      "prompt_token_ids, or add the tokenizer.json of the model");
}

std::vector<spec::TokenId> encode_text(const std::string& text, const RequestDefaults& defaults,
                                       const PromptLimits& limits) {
    if (text.empty()) throw std::runtime_error("prompt is empty");
    if (defaults.chat) return limits.encode_chat(messages_of_prompt(text, defaults.system));
    return limits.encode(text);
}

// The one field of those that say what to continue.
std::string source_of(const Json& object) {
    std::string source;
    for (const char* field : {"prompt", "messages", "prompt_token_ids"}) {
        if (!object.contains(field)) continue;
        if (!source.empty()) throw std::runtime_error("both " + source + " and " + field + " are given; give one");
        source = field;
    }
    if (source.empty() && object.contains("body"))
        throw std::runtime_error("prompt, messages or prompt_token_ids is missing; a batch file of the OpenAI API has "
                                 "them in body: jq -c '{id: .custom_id} + .body' FILE takes them out");
    if (source.empty()) throw std::runtime_error("prompt, messages or prompt_token_ids is missing");
    return source;
}

std::vector<spec::TokenId> prompt_of(const Json& object, const RequestDefaults& defaults, const PromptLimits& limits) {
    const std::string source = source_of(object);
    if (source != "prompt_token_ids") require_text(limits, source.c_str());
    if (source == "messages") return limits.encode_chat(messages_of(object, defaults.system));
    if (source == "prompt") return encode_text(model::text_of(object["prompt"], source), defaults, limits);
    const Json& ids = model::array_of(object[source], source, "an array of token ids");
    if (ids.empty()) throw std::runtime_error("prompt_token_ids is empty");
    std::vector<spec::TokenId> prompt;
    prompt.reserve(ids.size());
    for (const Json& id : ids)
        prompt.push_back(static_cast<spec::TokenId>(
            model::integer_of(id, fmt::format("prompt_token_ids[{}]", prompt.size()), 0, limits.vocab_size - 1)));
    return prompt;
}

spec::Request request_like(const RequestDefaults& defaults) {
    spec::Request request;
    request.max_new_tokens = defaults.max_new_tokens;
    request.sampling = defaults.sampling;
    request.processing = defaults.processing;
    request.ignore_eos = defaults.ignore_eos;
    request.stop_strings = defaults.stop_strings;
    return request;
}

// Of the data that is the user's own, as compact JSON: the object `metadata`, and the fields that mean nothing here.
std::string metadata_of(const std::string& line, const Json& object, const std::vector<std::string>& own) {
    const bool has_object = object.contains("metadata") && !object["metadata"].is_null();
    if (has_object && !object["metadata"].is_object())
        throw std::runtime_error("metadata must be an object: what is to be in the result");
    std::string metadata = has_object ? compact_field(line, object, "metadata") : "{}";
    const auto texts = compact_fields(line, object, own);
    for (const std::string& name : own) {
        if (has_object && object["metadata"].contains(name))
            throw std::runtime_error(shown_field(name) + " is data of your own, and is in metadata too; give one");
        metadata.pop_back();
        metadata += (metadata.size() > 1 ? "," : "") + compact(Json(name)) + ":" + texts.at(name) + "}";
    }
    return metadata == "{}" && !has_object ? "" : metadata;
}

// What makes lines of a file that is no JSON lines; empty where it cannot be told.
std::string remedy_for_no_json(const std::string& line) {
    const std::size_t begin = line.find_first_not_of(" \t\r\xef\xbb\xbf");
    if (begin == std::string::npos || line[begin] == '{') return "";
    if (line[begin] == '[') return "; a line is one object: jq -c '.[]' FILE makes lines of a list";
    return "; a line is one object such as {\"prompt\": \"...\"}: jq -Rc '{prompt: .}' FILE makes them of lines of "
           "text";
}

bool is_blank(const Line& line) {
    return !line.too_long && line.text.find_first_not_of(" \t\r") == std::string::npos;
}

// The id that parse_request() would give the line; nothing where it finds none.
std::optional<std::string> id_of_line(const Line& line, std::int64_t number) {
    if (line.too_long || is_blank(line)) return std::nullopt;
    try {
        return id_in(line.text, parse_json_line(line.text), number);
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

// The first line of a piece. Pieces differ by a line at most.
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

const std::string& id_of(const InputItem& item) {
    if (const auto* request = std::get_if<spec::Request>(&item)) return request->id;
    return std::get<BadLine>(item).id;
}

InputItem parse_request(const Line& line, std::int64_t number, const RequestDefaults& defaults,
                        const PromptLimits& limits) {
    if (line.too_long)
        return BadLine{"null", number, fmt::format("line is longer than {} MiB", LineReader::kLongestLine >> 20)};
    Json object;
    try {
        object = parse_json_line(line.text);
    } catch (const std::exception& error) {
        return BadLine{"null", number, error.what() + remedy_for_no_json(line.text)};
    }
    spec::Request request = request_like(defaults);
    request.id = id_in(line.text, object, number);
    request.sequence_key = hash_of(request.id);
    try {
        const bool is_conversation = defaults.chat || object.contains("messages");
        request.metadata = metadata_of(line.text, object, own_fields(object, is_conversation));
        apply_overrides(object, request, limits.vocab_size);
        if (!request.stop_strings.empty()) require_text(limits, "stop");
        request.prompt = prompt_of(object, defaults, limits);
        const std::string why = spec::why_unservable(request, limits.vocab_size, limits.max_positions);
        if (!why.empty()) throw std::runtime_error(why);
    } catch (const std::exception& error) {
        return BadLine{request.id, std::nullopt, error.what()};
    }
    return request;
}

InputItem request_of_prompt(const std::string& prompt, const RequestDefaults& defaults, const PromptLimits& limits) {
    spec::Request request = request_like(defaults);
    try {
        request.prompt = encode_text(prompt, defaults, limits);
        const std::string why = spec::why_unservable(request, limits.vocab_size, limits.max_positions);
        if (!why.empty()) throw std::runtime_error(why);
    } catch (const std::exception& error) {
        return BadLine{request.id, std::nullopt, error.what()};
    }
    return request;
}

RequestReader::RequestReader(const std::string& file, const RequestDefaults& defaults, PromptLimits limits)
    : RequestReader(std::make_unique<LineReader>(file), defaults, std::move(limits)) {}

RequestReader::RequestReader(std::unique_ptr<LineReader> lines, const RequestDefaults& defaults, PromptLimits limits)
    : lines_(std::move(lines)), defaults_(defaults), limits_(std::move(limits)) {}

std::optional<InputItem> RequestReader::next() {
    while (!end_ || number_ < *end_) {
        const std::optional<Line> line = lines_->next();
        if (!line) return std::nullopt;
        ++number_;
        if (is_blank(*line)) continue;
        InputItem item = parse_request(*line, number_, defaults_, limits_);
        const auto* bad = std::get_if<BadLine>(&item);
        if (bad != nullptr && bad->line) return item; // it has no id that could be a repeated one
        const std::string& id = id_of(item);
        if (!note_id(id)) return BadLine{id, std::nullopt, "id " + id.substr(0, 200) + " was used by an earlier line"};
        return item;
    }
    return std::nullopt;
}

// Whether the id is a new one.
bool RequestReader::note_id(const std::string& id) {
    return seen_.emplace(hash_of(id), hash_of(id, 1)).second;
}

void RequestReader::keep(const InputShard& shard) {
    if (!lines_->is_plain_file())
        throw std::runtime_error(lines_->file() + ": --shard needs a plain file, which can be read twice");
    const std::int64_t lines = count_lines(*lines_);
    first_ = piece_begin(lines, shard.index, shard.of);
    end_ = piece_begin(lines, shard.index + 1, shard.of);
    while (number_ < first_) {
        const std::optional<Line> line = lines_->next();
        if (!line) throw std::runtime_error(lines_->file() + ": became shorter, or reading was interrupted");
        ++number_;
        if (const auto id = id_of_line(*line, number_)) note_id(*id);
    }
}

double RequestReader::fraction() const {
    const auto share_of = [](auto part, auto whole) {
        return whole == 0 ? -1.0 : static_cast<double>(part) / static_cast<double>(whole);
    };
    if (end_) return share_of(number_ - first_, *end_ - first_);
    return share_of(lines_->bytes_read(), lines_->file_bytes());
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
