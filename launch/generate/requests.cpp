// Input lines turned into requests: see requests.h.
#include "entrodraft/launch/generate/requests.h"

#include "entrodraft/launch/generate/messages.h"
#include "entrodraft/launch/json_line.h"
#include "entrodraft/spec/philox.h"

#include <algorithm>
#include <cctype>
#include <climits>
#include <cmath>
#include <map>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

constexpr std::size_t kMostShown = 40; // bytes of a field's name in messages

std::uint64_t hash_of(const std::string& text, std::uint64_t seed = 0) {
    return spec::hash_bytes(text.data(), text.size(), seed);
}

// A whole number in [least, most] of `json[field]`. 5.0 is not one.
std::int64_t integer_field(const Json& value, const std::string& field, std::int64_t least, std::int64_t most) {
    if (value.is_number_integer()) {
        const bool fits =
            !value.is_number_unsigned() || value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX);
        const std::int64_t number = fits ? value.get<std::int64_t>() : INT64_MAX;
        if (fits && number >= least && number <= most) return number;
    }
    throw std::runtime_error(field + " must be a whole number from " + std::to_string(least) + " to " +
                             std::to_string(most));
}

double number_field(const Json& value, const std::string& field) {
    if (!value.is_number()) throw std::runtime_error(field + " must be a number");
    return value.get<double>();
}

std::uint64_t seed_field(const Json& value) {
    if (!value.is_number_unsigned()) throw std::runtime_error("seed must be a whole number from 0 to 2^64 - 1");
    return value.get<std::uint64_t>();
}

// Names that differ only in case, dashes and underscores are one: "topK", "top-k".
std::string folded(std::string_view name) {
    std::string letters;
    for (const char c : name)
        if (std::isalnum(static_cast<unsigned char>(c)))
            letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return letters;
}

using Names = std::map<std::string, std::string>; // by what they are folded

Names by_folded(const std::string& list) {
    Names all;
    for (const std::string& name : split_list(list, ' '))
        all.emplace(folded(name), name);
    return all;
}

// What a line may set.
const Names& fields_of_lines() {
    static const Names names =
        by_folded("max_new_tokens temperature top_k top_p min_p seed repetition_penalty presence_penalty "
                  "frequency_penalty no_repeat_ngram_size min_new_tokens logit_bias banned_tokens");
    return names;
}

const Names& options_of_the_run() {
    static const Names names =
        by_folded("ignore-eos stop stop-rule entropy-threshold entropy-factor entropy-window entropy-unit "
                  "num-draft-tokens max-draft-tokens min-draft-tokens drop-stop-token confidence-threshold "
                  "svip-threshold adaedl-gamma heuristic-persistent entropy-of ngram-full costs acceptance lenience "
                  "typical-epsilon typical-delta drafter chat "
                  "system");
    return names;
}

// The field of a line that a name like this one stands for, as far as can be seen.
std::optional<std::string> meant_field(const std::string& name) {
    if (name == "max_tokens" || name == "max_length") return "max_new_tokens";
    constexpr std::size_t kMostSlips = 2, kShortest = 9; // shorter words are near each other by chance
    const std::string letters = folded(name);
    if (const auto same = fields_of_lines().find(letters); same != fields_of_lines().end()) return same->second;
    for (const auto& [known, field] : fields_of_lines())
        if (known.size() >= kShortest && letters.size() <= known.size() + kMostSlips &&
            edit_distance(letters, known) <= kMostSlips)
            return field;
    return std::nullopt;
}

// Fields that ask for something a line cannot have, or would if they were spelt right. Anything else unknown is the
// user's own data.
void refuse_options_of_the_run(const Json& object) {
    for (const auto& [name, value] : object.items()) {
        const std::string shown = "field " + name.substr(0, kMostShown);
        if (const auto option = options_of_the_run().find(folded(name)); option != options_of_the_run().end())
            throw std::runtime_error(shown + " cannot be set by line; use --" + option->second);
        if (const auto field = meant_field(name); field && !object.contains(*field))
            throw std::runtime_error(shown + " is unknown; did you mean " + *field + "?");
    }
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

// {"220": -1.5}, as the API of OpenAI has it: token ids are names.
std::vector<std::pair<spec::TokenId, float>> bias_field(const Json& value) {
    if (!value.is_object()) throw std::runtime_error("logit_bias must be an object of token ids and numbers");
    std::vector<std::pair<spec::TokenId, float>> biases;
    for (const auto& [name, bias] : value.items()) {
        const Json token = Json::parse(name, nullptr, false);
        const std::string field = "logit_bias[\"" + name.substr(0, kMostShown) + "\"]";
        biases.emplace_back(static_cast<spec::TokenId>(integer_field(token, "a token id in logit_bias", 0, INT_MAX)),
                            static_cast<float>(number_field(bias, field)));
    }
    return biases;
}

std::vector<spec::TokenId> tokens_field(const Json& value, const std::string& field) {
    if (!value.is_array()) throw std::runtime_error(field + " must be an array of token ids");
    std::vector<spec::TokenId> tokens;
    for (const Json& token : value)
        tokens.push_back(static_cast<spec::TokenId>(integer_field(token, field, 0, INT_MAX)));
    return tokens;
}

// Whether the field is one of what is done to logits before temperature and filters.
bool apply_processing(const std::string& field, const Json& value, spec::LogitProcessing& processing) {
    if (field == "repetition_penalty")
        processing.repetition_penalty = number_field(value, field);
    else if (field == "presence_penalty")
        processing.presence_penalty = number_field(value, field);
    else if (field == "frequency_penalty")
        processing.frequency_penalty = number_field(value, field);
    else if (field == "no_repeat_ngram_size")
        processing.no_repeat_ngram_size = static_cast<int>(integer_field(value, field, 0, INT_MAX));
    else if (field == "min_new_tokens")
        processing.min_new_tokens = static_cast<int>(integer_field(value, field, 0, INT_MAX));
    else if (field == "logit_bias")
        processing.logit_bias = bias_field(value);
    else if (field == "banned_tokens")
        processing.banned_tokens = tokens_field(value, field);
    else
        return false;
    return true;
}

void apply_overrides(const Json& object, spec::Request& request, int vocab_size) {
    for (const auto& [field, value] : object.items()) {
        if (apply_processing(field, value, request.processing)) continue;
        if (field == "max_new_tokens")
            request.max_new_tokens = static_cast<int>(integer_field(value, field, 1, INT_MAX));
        else if (field == "temperature")
            request.sampling.temperature = number_field(value, field);
        else if (field == "top_k")
            request.sampling.top_k = static_cast<int>(integer_field(value, field, 0, INT_MAX));
        else if (field == "top_p")
            request.sampling.top_p = number_field(value, field);
        else if (field == "min_p")
            request.sampling.min_p = number_field(value, field);
        else if (field == "seed")
            request.sampling.seed = seed_field(value);
    }
    if (const char* why = spec::why_invalid(request.sampling); *why != '\0') throw std::runtime_error(as_field(why));
    if (const std::string why = spec::why_invalid(request.processing, vocab_size); !why.empty())
        throw std::runtime_error(as_field(why));
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
    if (source.empty()) throw std::runtime_error("prompt, messages or prompt_token_ids is missing");
    return source;
}

std::vector<spec::TokenId> prompt_of(const Json& object, const RequestDefaults& defaults, const PromptLimits& limits) {
    const std::string source = source_of(object);
    if (source == "messages") return limits.encode_chat(messages_of(object, defaults.system));
    if (source == "prompt") {
        if (!object["prompt"].is_string()) throw std::runtime_error("prompt must be a string");
        return encode_text(object["prompt"].get<std::string>(), defaults, limits);
    }
    const Json& ids = object["prompt_token_ids"];
    if (!ids.is_array()) throw std::runtime_error("prompt_token_ids must be an array of token ids");
    if (ids.empty()) throw std::runtime_error("prompt_token_ids is empty");
    std::vector<spec::TokenId> prompt;
    prompt.reserve(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i)
        prompt.push_back(static_cast<spec::TokenId>(
            integer_field(ids[i], "prompt_token_ids[" + std::to_string(i) + "]", 0, limits.vocab_size - 1)));
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

std::string id_in(const Json& object, std::int64_t number) {
    return object.contains("id") ? compact(object["id"]) : std::to_string(number);
}

bool is_blank(const Line& line) {
    return !line.too_long && line.text.find_first_not_of(" \t\r") == std::string::npos;
}

// The id that parse_request() would give the line; nothing where it finds none.
std::optional<std::string> id_of_line(const Line& line, std::int64_t number) {
    if (line.too_long || is_blank(line)) return std::nullopt;
    try {
        return id_in(parse_json_line(line.text), number);
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
        return BadLine{"null", number,
                       "line is longer than " + std::to_string(LineReader::kLongestLine >> 20) + " MiB"};
    Json object;
    try {
        object = parse_json_line(line.text);
    } catch (const std::exception& error) {
        return BadLine{"null", number, error.what()};
    }
    spec::Request request = request_like(defaults);
    request.id = id_in(object, number);
    request.sequence_key = hash_of(request.id);
    try {
        refuse_options_of_the_run(object);
        apply_overrides(object, request, limits.vocab_size);
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
        std::optional<Line> line = lines_->next();
        if (!line) return std::nullopt;
        line_ = std::move(*line);
        const std::int64_t number = number_++;
        if (is_blank(line_)) continue;
        InputItem item = parse_request(line_, number, defaults_, limits_);
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

void RequestReader::keep(const Share& share) {
    if (!lines_->is_plain_file())
        throw std::runtime_error(lines_->file() + ": --share needs a plain file, which can be read twice");
    const std::int64_t lines = count_lines(*lines_);
    first_ = piece_begin(lines, share.index, share.of);
    end_ = piece_begin(lines, share.index + 1, share.of);
    while (number_ < first_) {
        const std::optional<Line> line = lines_->next();
        if (!line) throw std::runtime_error(lines_->file() + ": became shorter, or reading was interrupted");
        if (const auto id = id_of_line(*line, number_)) note_id(*id);
        ++number_;
    }
}

double RequestReader::fraction() const {
    const auto share_of = [](auto part, auto whole) {
        return whole == 0 ? -1.0 : static_cast<double>(part) / static_cast<double>(whole);
    };
    if (end_) return share_of(number_ - first_, *end_ - first_);
    return share_of(lines_->bytes_read(), lines_->file_bytes());
}

} // namespace entrodraft::launch
