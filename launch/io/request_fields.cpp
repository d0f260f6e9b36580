// Makes a request from the fields of an input line. This is the parsing half of requests.h.
#include "launch/cli/generation_defaults.h"
#include "launch/cli/options.h"
#include "launch/cli/shared_options.h"
#include "launch/io/chat.h"
#include "launch/io/field_names.h"
#include "launch/io/openai_batch.h"
#include "launch/io/requests.h"
#include "model/files/json_object.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>
#include <fmt/format.h>
#include <optional>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

int count_field(const Json& value, const std::string& field, int least = 0, int most = INT_MAX) {
    return static_cast<int>(model::integer_of(value, field, least, most));
}

// Reads {"220": -1.5}, as in OpenAI's API: the names are token ids.
std::vector<std::pair<spec::TokenId, float>> bias_field(const Json& value) {
    if (!value.is_object()) throw std::runtime_error("logit_bias must be an object of token ids and numbers");
    std::vector<std::pair<spec::TokenId, float>> biases;
    for (const auto& [name, bias] : value.items()) {
        constexpr std::size_t kMaxShown = 40; // bytes
        spec::TokenId token = -1;
        const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), token);
        if (error != std::errc{} || end != name.data() + name.size() || name.front() == '-')
            model::refuse_value("a token id in logit_bias",
                                fmt::format("must be a whole number from 0 to {}", INT_MAX));
        const std::string field = fmt::format("logit_bias[\"{}\"]", name.substr(0, kMaxShown));
        biases.emplace_back(token, static_cast<float>(model::number_of(bias, field)));
    }
    return biases;
}

std::vector<spec::TokenId> tokens_field(const Json& value, const std::string& field) {
    std::vector<spec::TokenId> tokens;
    for (const Json& token : model::array_of(value, field, "an array of token ids"))
        tokens.push_back(count_field(token, field));
    return tokens;
}

// Reads "stop" as in OpenAI's API: a string, or a list of strings.
std::vector<std::string> stop_field(const Json& value) {
    std::vector<std::string> strings;
    for (const Json& one : value.is_array() ? value : Json::array({value})) {
        if (!one.is_string()) throw std::runtime_error("stop must be a string or a list of strings");
        strings.push_back(one.get<std::string>());
    }
    return strings;
}

// Returns nothing if the value is false.
std::optional<int> logprobs_field(const Json& value, const std::string& field) {
    if (value == false) return std::nullopt;
    return count_field(value, field, 0, spec::Request::kMaxLogprobs);
}

using model::grammar::Language;

void constraint_field(const Json& value, const std::string& field, Language language, spec::Request& request) {
    if (language == Language::json_schema && !value.is_object() && !value.is_boolean())
        throw std::runtime_error(field + " must be a schema: an object, or true for any JSON");
    const bool is_schema = language == Language::json_schema;
    request.processing.constraint = {language, is_schema ? compact(value) : model::text_of(value, field)};
}

spec::EarlyStopping early_stopping_field(const Json& value) {
    if (value == "never") return spec::EarlyStopping::never;
    if (!value.is_boolean()) throw std::runtime_error("early_stopping must be true, false or \"never\"");
    return value.get<bool>() ? spec::EarlyStopping::yes : spec::EarlyStopping::no;
}

// The fields that a line may set.
constexpr LineField kLineFields[] = {
    {"max_new_tokens", [](auto& v, auto& n, auto& r) { r.max_new_tokens = count_field(v, n, 1); },
     "max_tokens max_length n_predict max_completion_tokens max_output_tokens num_predict"},
    {"temperature", [](auto& v, auto& n, auto& r) { r.sampling.temperature = model::number_of(v, n); }},
    {"top_k", [](auto& v, auto& n, auto& r) { r.sampling.top_k = count_field(v, n); }},
    {"top_p", [](auto& v, auto& n, auto& r) { r.sampling.top_p = model::number_of(v, n); }},
    {"min_p", [](auto& v, auto& n, auto& r) { r.sampling.min_p = model::number_of(v, n); }},
    {"seed",
     [](auto& v, auto& n, auto& r) {
         if (!v.is_number_unsigned()) model::refuse_value(n, "must be a whole number from 0 to 2^64 - 1");
         r.sampling.seed = v.template get<std::uint64_t>();
     }},
    {"repetition_penalty", [](auto& v, auto& n, auto& r) { r.processing.repetition_penalty = model::number_of(v, n); },
     "repeat_penalty"},
    {"presence_penalty", [](auto& v, auto& n, auto& r) { r.processing.presence_penalty = model::number_of(v, n); }},
    {"frequency_penalty", [](auto& v, auto& n, auto& r) { r.processing.frequency_penalty = model::number_of(v, n); }},
    {"no_repeat_ngram_size", [](auto& v, auto& n, auto& r) { r.processing.no_repeat_ngram_size = count_field(v, n); }},
    {"min_new_tokens", [](auto& v, auto& n, auto& r) { r.processing.min_new_tokens = count_field(v, n); },
     "min_tokens min_length"},
    {"logit_bias",
     [](auto& v, auto&, auto& r) {
         r.processing.logit_bias = bias_field(v);
         std::erase_if(r.processing.sequence_bias, [](const auto& each) { return std::isfinite(each.bias); });
     }},
    {"banned_tokens",
     [](auto& v, auto& n, auto& r) {
         r.processing.banned_tokens = tokens_field(v, n);
         r.processing.suppress_tokens.clear();
     }},
    {"json_schema", [](auto& v, auto& n, auto& r) { constraint_field(v, n, Language::json_schema, r); }},
    {"regex", [](auto& v, auto& n, auto& r) { constraint_field(v, n, Language::regex, r); }},
    {"grammar", [](auto& v, auto& n, auto& r) { constraint_field(v, n, Language::grammar, r); }},
    {"num_samples", [](auto& v, auto& n, auto& r) { r.num_samples = count_field(v, n, 1, spec::kMaxSlots); }},
    {"logprobs", [](auto& v, auto& n, auto& r) { r.logprobs = logprobs_field(v, n); }, "n_probs output_scores"},
    {"num_beams", [](auto& v, auto& n, auto& r) { r.beams.num_beams = count_field(v, n, 1); }},
    {"length_penalty", [](auto& v, auto& n, auto& r) { r.beams.length_penalty = model::number_of(v, n); }},
    {"early_stopping", [](auto& v, auto&, auto& r) { r.beams.early_stopping = early_stopping_field(v); }},
    {"num_return_sequences", [](auto& v, auto& n, auto& r) { r.beams.num_return_sequences = count_field(v, n, 1); }},
    {"ignore_eos", [](auto& v, auto& n, auto& r) { r.ignore_eos = model::truth_of(v, n); }},
    {"stop_rule", [](auto& v, auto& n, auto& r) { r.stop_rule = model::text_of(v, n); }},
    {"stop", [](auto& v, auto&, auto& r) { r.stop_strings = stop_field(v); }, "stop_strings stop_sequences"},
};

} // namespace

std::span<const LineField> line_fields() {
    return kLineFields;
}

namespace {

// Rewrites "--top-p must be ..." for a line: "top_p must be ...".
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

// do_sample, transformers' field, must agree with the temperature.
void check_do_sample(const Json& value, const spec::SamplingOptions& sampling) {
    if (const bool samples = model::truth_of(value, "do_sample"); samples == sampling.greedy())
        throw std::runtime_error(samples ? "do_sample is true at temperature 0; give a temperature above 0"
                                         : "do_sample is false at a temperature above 0; give temperature 0");
}

// A model without a tokenizer cannot serve a field that needs text.
void require_text(const PromptLimits& limits, const char* field) {
    if (!limits.encode)
        throw std::runtime_error(std::string(field) + " cannot be served: the target has no tokenizer; give "
                                                      "prompt_token_ids, or add the tokenizer.json of the model");
}

// Throws unless a line has at most one constraint, the constraint compiles, and the command and the model can apply it.
void check_constraint(const Json& object, const RequestDefaults& defaults, const PromptLimits& limits,
                      const spec::LogitProcessing& processing) {
    std::string given;
    for (const char* field : {"json_schema", "regex", "grammar"}) {
        if (!object.contains(field)) continue;
        if (!given.empty()) throw std::runtime_error("both " + given + " and " + field + " are given; give one");
        given = field;
    }
    if (!processing.constraint.is_on()) return;
    const std::string name = to_string(processing.constraint.language);
    if (!defaults.has_results) throw std::runtime_error(name + " is for generate; leave it out");
    require_text(limits, name.c_str());
    if (given.empty()) return; // the options were checked already
    try {
        (void)model::grammar::compile(processing.constraint);
    } catch (const model::grammar::BadGrammar& error) {
        throw std::runtime_error(name + ": " + error.what());
    }
}

// Either a whole run uses beam search or it does not. A line may ask for fewer beams.
void check_beams(const Json& object, const RequestDefaults& defaults, spec::BeamOptions& beams) {
    const int most = std::max(defaults.beams.num_beams, 1);
    if (beams.num_beams > most)
        throw std::runtime_error(fmt::format("num_beams {} is more than the {} of the run; use --num-beams {}",
                                             beams.num_beams, most, beams.num_beams));
    if (!defaults.beams.is_on()) {
        if (beams.num_return_sequences > 1)
            throw std::runtime_error("num_return_sequences needs beam search; use --num-beams");
        for (const auto& [field, harmless] : {std::pair("length_penalty", Json(1)), {"early_stopping", Json(false)}})
            if (object.contains(field) && object[field] != harmless)
                throw std::runtime_error(std::string(field) + " needs beam search; use --num-beams");
        beams = {};
    }
    if (const std::string why = spec::why_invalid(beams); !why.empty()) throw std::runtime_error(as_field(why));
}

// Throws unless the line's rule, if it names one, is a rule and can be the run's.
void check_stop_rule(const RequestDefaults& defaults, const std::string& rule) {
    if (rule.empty()) return;
    if (!defaults.stop_rules)
        throw std::runtime_error(
            "stop_rule is for runs of generate and serve that draft chains: with a draft, without a "
            "tree, lookahead or beams; leave it out");
    constexpr std::size_t kLongest = 200; // bytes; the time of reading grows with it, and an error repeats it
    if (rule.size() > kLongest)
        throw std::runtime_error(fmt::format("stop_rule has {} bytes; the most is {}", rule.size(), kLongest));
    try {
        (void)rule_of_line(rule, *defaults.stop_rules);
    } catch (const BadOption& error) {
        std::string why = error.what(); // of an option: "--stop-rule static:x: ..."
        if (constexpr std::string_view kOption = "--stop-rule"; why.starts_with(kOption))
            why.replace(0, kOption.size(), "stop_rule");
        throw std::runtime_error(why);
    }
}

void apply_fields(const Json& object, const RequestDefaults& defaults, const PromptLimits& limits,
                  spec::Request& request) {
    for (const auto& [name, value] : object.items())
        for (const LineField& field : kLineFields)
            if (name == field.name) field.set(value, name, request);
    check_beams(object, defaults, request.beams);
    check_constraint(object, defaults, limits, request.processing);
    check_stop_rule(defaults, request.stop_rule);
    if (request.num_samples > 1 && !defaults.has_results)
        throw std::runtime_error("num_samples is for generate; leave it out");
    if (request.logprobs && !defaults.has_results) throw std::runtime_error("logprobs is for generate; leave it out");
    if (request.num_samples > 1 && request.beams.is_on())
        throw std::runtime_error("num_samples does not go with beam search; give num_return_sequences");
    if (request.num_samples > 1 && request.sampling.greedy())
        throw std::runtime_error("num_samples needs a temperature above 0: greedy texts are all the same");
    if (object.contains("do_sample")) check_do_sample(object["do_sample"], request.sampling);
    if (const char* why = spec::why_invalid(request.sampling); *why != '\0') throw std::runtime_error(as_field(why));
    if (const std::string why = spec::why_invalid(request.processing, limits.vocab_size); !why.empty())
        throw std::runtime_error(as_field(why));
}

std::vector<spec::TokenId> encode_text(const std::string& text, const RequestDefaults& defaults,
                                       const PromptLimits& limits, const Json& line = Json::object()) {
    if (text.empty()) throw std::runtime_error("prompt is empty");
    if (defaults.chat) return limits.encode_chat(conversation_of_prompt(text, defaults.system, line));
    return limits.encode(text);
}

// Returns the one field that says what to continue.
std::string source_of(const Json& object) {
    std::string source;
    for (const char* field : {"prompt", "messages", "prompt_token_ids"}) {
        if (!object.contains(field)) continue;
        if (!source.empty()) throw std::runtime_error("both " + source + " and " + field + " are given; give one");
        source = field;
    }
    if (source.empty() && object.contains("turns"))
        throw std::runtime_error(
            "prompt, messages or prompt_token_ids is missing; Spec-Bench has prompts in turns, and "
            "jq -c '{id: .question_id, category, prompt: .turns[0]}' FILE takes out the first of "
            "each line");
    if (source.empty() && object.contains("body"))
        throw std::runtime_error("prompt, messages or prompt_token_ids is missing; a batch file of the OpenAI API has "
                                 "them in body: generate reads it with --format openai, and jq -c '{id: .custom_id} + "
                                 ".body' FILE takes them out");
    if (source.empty()) throw std::runtime_error("prompt, messages or prompt_token_ids is missing");
    return source;
}

std::vector<spec::TokenId> prompt_of(const Json& object, const RequestDefaults& defaults, const PromptLimits& limits) {
    const std::string source = source_of(object);
    if (source != "prompt_token_ids") require_text(limits, source.c_str());
    for (const char* field : {"tools", "chat_template_kwargs"})
        if (source != "messages" && !(source == "prompt" && defaults.chat) && object.contains(field) &&
            !object[field].empty())
            throw std::runtime_error(
                fmt::format("{} has no effect without messages; leave it out", shown_field(field)));
    if (source == "messages") return limits.encode_chat(conversation_of(object, defaults.system));
    if (source == "prompt") return encode_text(model::text_of(object["prompt"], source), defaults, limits, object);
    const Json& ids = model::array_of(object[source], source, "an array of token ids");
    if (ids.empty()) throw std::runtime_error("prompt_token_ids is empty");
    const int known = limits.source.max_tokens > 0 ? limits.source.vocab_size : limits.vocab_size;
    std::vector<spec::TokenId> prompt;
    prompt.reserve(ids.size());
    for (const Json& id : ids)
        prompt.push_back(static_cast<spec::TokenId>(
            model::integer_of(id, fmt::format("prompt_token_ids[{}]", prompt.size()), 0, known - 1)));
    return prompt;
}

// The line's prompt goes to the encoder, if there is one. The decoder's prompt is then the beginning of its texts.
void set_prompt(spec::Request& request, std::vector<spec::TokenId> given, const PromptLimits& limits,
                const Json& decoder_prompt = {}) {
    const bool has_encoder = limits.source.max_tokens > 0;
    (has_encoder ? request.source : request.prompt) = std::move(given);
    if (has_encoder) request.prompt = limits.decoder_start;
    if (decoder_prompt.is_null()) {
        // The tokens after the first are forced_bos_token_id, which transformers counts as text.
        request.beams.forced_tokens = has_encoder ? static_cast<int>(limits.decoder_start.size()) - 1 : 0;
        return;
    }
    if (!has_encoder)
        throw std::runtime_error("decoder_prompt is for models with an encoder, and the target has none; join it to "
                                 "the prompt");
    require_text(limits, "decoder_prompt");
    const auto more = limits.encode_decoder_prompt(model::text_of(decoder_prompt, "decoder_prompt"));
    request.prompt.insert(request.prompt.end(), more.begin(), more.end());
}

void set_lengths_of_file(const Json& line, const RequestDefaults& defaults, const PromptLimits& limits,
                         spec::Request& request) {
    const auto says = [&](const char* field) { return line.contains(field) && !line[field].is_null(); };
    set_lengths(defaults.file_lengths, says, limits.max_positions, request);
}

// Returns the user's own data as compact JSON: the object `metadata`, and the fields that mean nothing here.
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

// Says how to make lines of a file that is not JSON lines; empty if that is not clear.
std::string remedy_for_no_json(const std::string& line) {
    const std::size_t begin = line.find_first_not_of(" \t\r\xef\xbb\xbf");
    if (begin == std::string::npos || line[begin] == '{') return "";
    if (line[begin] == '[') return "; a line is one object: jq -c '.[]' FILE makes lines of a list";
    return "; a line is one object such as {\"prompt\": \"...\"}: jq -Rc '{prompt: .}' FILE makes them of lines of "
           "text";
}

// Returns the request after `fill` has filled it in, or says what is wrong with it.
InputItem checked(spec::Request request, const PromptLimits& limits, const std::function<void(spec::Request&)>& fill) {
    try {
        fill(request);
        if (const std::string why = spec::why_no_source(request, limits.source); !why.empty())
            throw std::runtime_error(why);
        if (const std::string why = spec::why_unservable(request, limits.vocab_size, limits.max_positions);
            !why.empty())
            throw std::runtime_error(why);
    } catch (const std::exception& error) {
        if (request.response == spec::ResponseFormat::line) return BadLine{request.id, std::nullopt, error.what()};
        return BadLine{request.id, std::nullopt, in_openai_names(error.what()), true};
    }
    return request;
}

// Fills in a request of OpenAI's API. After renaming, its fields are those of lines.
void fill_openai(const OpenAiRequest& given, const RequestDefaults& defaults, const PromptLimits& limits,
                 spec::Request& request) {
    const bool is_chat = given.response == spec::ResponseFormat::chat_completion;
    request.response = given.response;
    request.model = given.model;
    request.sampling.temperature = defaults.body_temperature;
    constexpr int kCompletionTokens = 16; // that API's default for a completion
    request.max_new_tokens = defaults.body_new_tokens.value_or(is_chat ? limits.max_positions : kCompletionTokens);
    if (defaults.chat && !is_chat)
        throw std::runtime_error("--chat makes no chat of a completion; leave it out, or give messages to "
                                 "/v1/chat/completions");
    if (!limits.encode)
        throw std::runtime_error("responses are text, and the target has no tokenizer; give input lines with "
                                 "prompt_token_ids");
    for (const std::string& name : own_fields(given.fields, is_chat))
        throw std::runtime_error(shown_field(name) + " is unknown; leave it out");
    apply_fields(given.fields, defaults, limits, request);
    set_prompt(request, prompt_of(given.fields, defaults, limits), limits,
               given.fields.value("decoder_prompt", Json()));
    set_lengths_of_file(given.fields, defaults, limits, request);
}

InputItem parse_openai_request(const Json& object, std::int64_t number, const RequestDefaults& defaults,
                               const PromptLimits& limits) {
    const auto* const id = object.contains("custom_id") ? object["custom_id"].get_ptr<const std::string*>() : nullptr;
    if (id == nullptr || id->empty()) return BadLine{"null", number, "custom_id must be a string", true};
    spec::Request request = request_like(defaults);
    request.response = spec::ResponseFormat::chat_completion; // its error is a response, too, whatever the url
    request.id = compact(object["custom_id"]);
    request.sequence_key = hash_of_id(request.id);
    return checked(std::move(request), limits,
                   [&](spec::Request& filled) { fill_openai(read_openai_request(object), defaults, limits, filled); });
}

} // namespace

const std::vector<std::string> kTemplateFields = {"messages", "tools", "chat_template_kwargs"};

spec::Request request_like(const RequestDefaults& defaults) {
    spec::Request request;
    request.max_new_tokens = defaults.max_new_tokens;
    request.sampling = defaults.sampling;
    request.processing = defaults.processing;
    request.beams = defaults.beams;
    request.num_samples = defaults.num_samples;
    request.logprobs = defaults.logprobs;
    request.ignore_eos = defaults.ignore_eos;
    request.stop_strings = defaults.stop_strings;
    return request;
}

InputItem parse_request(const Line& line, std::int64_t number, const RequestDefaults& defaults,
                        const PromptLimits& limits) {
    const bool is_openai = defaults.format == InputFormat::openai;
    if (line.too_long)
        return BadLine{"null", number, fmt::format("line is longer than {} MiB", LineReader::kLongestLine >> 20),
                       is_openai};
    Json object;
    try {
        object = parse_json_line(line.text);
    } catch (const std::exception& error) {
        return BadLine{"null", number, error.what() + (is_openai ? "" : remedy_for_no_json(line.text)), is_openai};
    }
    if (is_openai || (defaults.format == InputFormat::found && defaults.has_results && is_openai_request(object))) {
        keep_large_integers(line.text, object, kTemplateFields);
        return parse_openai_request(object, number, defaults, limits);
    }
    spec::Request request = request_like(defaults);
    request.id = id_in(line.text, object, number);
    request.sequence_key = hash_of_id(request.id);
    return checked(std::move(request), limits, [&](spec::Request& filled) {
        const bool is_conversation = defaults.chat || !object.value("messages", Json()).is_null();
        filled.metadata = metadata_of(line.text, object, own_fields(object, is_conversation));
        drop_nulls(object);
        apply_fields(object, defaults, limits, filled);
        if (!filled.stop_strings.empty()) require_text(limits, "stop");
        keep_large_integers(line.text, object, kTemplateFields);
        set_prompt(filled, prompt_of(object, defaults, limits), limits, object.value("decoder_prompt", Json()));
        set_lengths_of_file(object, defaults, limits, filled);
    });
}

InputItem parse_openai_body(spec::ResponseFormat response, const Json& body, const RequestDefaults& defaults,
                            const PromptLimits& limits) {
    spec::Request request = request_like(defaults);
    request.response = response;
    return checked(std::move(request), limits, [&](spec::Request& filled) {
        fill_openai(read_openai_body(response, body), defaults, limits, filled);
    });
}

InputItem request_of_prompt(const std::string& prompt, const RequestDefaults& defaults, const PromptLimits& limits) {
    return checked(request_like(defaults), limits, [&](spec::Request& filled) {
        filled.streams = true;
        check_constraint(Json::object(), defaults, limits, filled.processing);
        set_prompt(filled, encode_text(prompt, defaults, limits), limits);
        set_lengths_of_file(Json::object(), defaults, limits, filled);
    });
}

} // namespace entrodraft::launch
