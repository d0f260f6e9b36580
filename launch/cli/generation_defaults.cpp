// Takes defaults from generation_config.json: see generation_defaults.h.
#include "launch/cli/generation_defaults.h"

#include "launch/start/failure.h"
#include "launch/start/model_directory.h"
#include "model/families/config.h"
#include "model/families/read_config.h"
#include "model/files/gguf_file.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

using model::GenerationConfig;
using FileFields = std::vector<GenerationConfig::Field>;

constexpr const char* kLeaveOut = "; --generation-config none leaves the file out";

// Returns the option that sets the field for the whole run.
std::string option_of(const std::string& field) {
    if (field == "do_sample") return "temperature";
    if (field == "max_length") return "max-new-tokens";
    std::string option = field;
    std::ranges::replace(option, '_', '-');
    return option;
}

std::string in_words_of(const FileFields& fields) {
    std::string text;
    for (const auto& [name, value] : fields)
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
    return text;
}

FileFields without_given(FileFields fields, const RequestDefaults& requests) {
    std::erase_if(fields, [&](const auto& field) { return requests.given.contains(option_of(field.name)); });
    return fields;
}

// ---- settings that change greedy text ----

void take_processing(const GenerationConfig& file, RequestDefaults& requests) {
    const auto is_given = [&](const char* option) { return requests.given.contains(option); };
    spec::LogitProcessing& to = requests.processing;
    if (!is_given("repetition-penalty")) to.repetition_penalty = file.repetition_penalty.value_or(1);
    if (!is_given("no-repeat-ngram-size")) to.no_repeat_ngram_size = file.no_repeat_ngram_size.value_or(0);
    if (!is_given("banned-tokens")) to.suppress_tokens = file.suppress_tokens;
    if (!is_given("logit-bias"))
        for (const auto& [tokens, bias] : file.sequence_bias)
            to.sequence_bias.push_back({tokens, bias});
    for (const std::vector<spec::TokenId>& word : file.bad_words)
        to.sequence_bias.push_back({word, -std::numeric_limits<float>::infinity()});
    to.encoder_repetition_penalty = file.encoder_repetition_penalty.value_or(1);
    to.encoder_no_repeat_ngram_size = file.encoder_no_repeat_ngram_size.value_or(0);
    to.begin_suppress_tokens = file.begin_suppress_tokens;
    to.forced_bos_token = file.forced_bos_token.value_or(-1);
    to.forced_eos_tokens = file.forced_eos_tokens;
    if (file.decay) to.decay = {file.decay->factor, file.decay->start};
    if (!is_given("min-new-tokens")) {
        requests.file_lengths.min_new_tokens = file.min_new_tokens;
        requests.file_lengths.min_length = file.min_length.value_or(0);
    }
}

void take_ends(const GenerationConfig& file, ModelOptions& models, RequestDefaults& requests) {
    if (requests.given.contains("stop") || file.stop_strings.empty()) return;
    const std::string name = "stop_strings of " + file.file.string();
    refuse_if(requests.beams.is_on(), "--num-beams does not go with " + name + kLeaveOut);
    for (const std::string& stop : file.stop_strings)
        if (const std::string why = spec::why_no_stop_string(stop); !why.empty())
            throw BadOption(fmt::format("{}: one {}{}", name, why, kLeaveOut));
    requests.stop_strings = file.stop_strings;
    if (models.needs_text.empty()) models.needs_text = name;
}

void take_beams(const GenerationConfig& file, RequestDefaults& requests) {
    if (!requests.beams.is_on()) return;
    if (!requests.given.contains("length-penalty"))
        requests.beams.length_penalty = file.length_penalty.value_or(requests.beams.length_penalty);
    if (requests.given.contains("early-stopping")) return;
    for (const auto each : {spec::EarlyStopping::no, spec::EarlyStopping::yes, spec::EarlyStopping::never})
        if (file.early_stopping == to_string(each)) requests.beams.early_stopping = each;
}

// ---- sampling and lengths ----

void take_sampling(const GenerationConfig& file, RequestDefaults& requests) {
    if (file.temperature == 0) return; // greedy text
    const auto take = [&](const char* option, auto value, auto& to) {
        if (!requests.given.contains(option)) to = value;
    };
    take("temperature", file.temperature, requests.sampling.temperature);
    take("temperature", file.temperature, requests.body_temperature);
    take("top-k", file.top_k, requests.sampling.top_k);
    take("top-p", file.top_p, requests.sampling.top_p);
    take("min-p", file.min_p, requests.sampling.min_p);
}

void take_lengths(const GenerationConfig& file, RequestDefaults& requests) {
    if (requests.given.contains("max-new-tokens")) return;
    requests.file_lengths.max_new_tokens = file.max_new_tokens;
    requests.file_lengths.max_length = file.max_length;
    requests.max_new_tokens =
        file.max_new_tokens.value_or(file.max_length.value_or(requests.max_new_tokens)); // at most
}

// ---- notes about the file ----

void note_what_is_left(const GenerationConfig& file, ModelOptions& models, const RequestDefaults& requests) {
    const bool takes_all = requests.generation_config == GenerationConfigUse::all;
    FileFields left = takes_all && !requests.beams.is_on() ? FileFields() : file.sampling;
    if (!takes_all) left.insert(left.end(), file.lengths.begin(), file.lengths.end());
    left = without_given(std::move(left), requests);
    if (!left.empty())
        models.notes.push_back(
            fmt::format("note: {}: not applied: {}; {}", file.file.string(), in_words_of(left),
                        requests.beams.is_on()
                            ? "--num-beams takes the most probable tokens, and --max-new-tokens limits them"
                            : "give --generation-config all, or options such as --temperature, --max-new-tokens"));
    const FileFields unserved = without_given(file.not_served, requests);
    const bool has_beams = std::ranges::count(unserved, "num_beams", &GenerationConfig::Field::name) > 0;
    if (!unserved.empty())
        models.notes.push_back(fmt::format("warning: {}: not served, so that transformers' texts are others: {}{}{}",
                                           file.file.string(), in_words_of(unserved),
                                           has_beams ? "; give --num-beams for a beam search" : "", kLeaveOut));
}

} // namespace

void take_generation_config(const GenerationConfig& file, ModelOptions& models, RequestDefaults& requests) {
    if (file.file.empty()) return;
    take_processing(file, requests);
    take_ends(file, models, requests);
    take_beams(file, requests);
    if (requests.generation_config == GenerationConfigUse::all) {
        if (!requests.beams.is_on()) take_sampling(file, requests);
        take_lengths(file, requests);
    }
    note_what_is_left(file, models, requests);
    std::string why = spec::why_invalid(requests.processing, INT_MAX);
    if (why.empty()) why = spec::why_invalid(requests.sampling);
    if (why.empty()) why = spec::why_invalid(requests.beams);
    if (!why.empty()) throw BadOption(fmt::format("{}: {}{}", file.file.string(), why, kLeaveOut));
}

void take_generation_config(ModelOptions& models, RequestDefaults& requests) {
    if (requests.generation_config != GenerationConfigUse::none && !models.target.empty()) {
        const std::filesystem::path directory = resolve_checkpoint_directory(models.target, "--target");
        if (!model::gguf_file_of(directory)) // a GGUF file has no generation_config.json
            take_generation_config(model::read_generation_config(directory, model::read_config(directory)), models,
                                   requests);
    }
    if (const std::string why = why_no_sampling(requests); requests.only_file_can_sample && !why.empty())
        throw BadOption(why);
}

nlohmann::json json_of_file_rules(const RequestDefaults& requests) {
    const spec::LogitProcessing& processing = requests.processing;
    const FileLengths& lengths = requests.file_lengths;
    nlohmann::json json = nlohmann::json::object();
    const auto add = [&](const char* name, const auto& value, bool is_on) {
        if (is_on) json[name] = value;
    };
    add("encoder_repetition_penalty", processing.encoder_repetition_penalty,
        processing.encoder_repetition_penalty != 1);
    add("encoder_no_repeat_ngram_size", processing.encoder_no_repeat_ngram_size,
        processing.encoder_no_repeat_ngram_size > 0);
    for (const spec::BiasedTokens& each : processing.sequence_bias) {
        if (std::isfinite(each.bias))
            json["sequence_bias"].push_back({each.tokens, each.bias});
        else
            json["bad_words_ids"].push_back(each.tokens);
    }
    add("suppress_tokens", processing.suppress_tokens, !processing.suppress_tokens.empty());
    add("begin_suppress_tokens", processing.begin_suppress_tokens, !processing.begin_suppress_tokens.empty());
    add("forced_bos_token_id", processing.forced_bos_token, processing.forced_bos_token >= 0);
    add("forced_eos_token_id", processing.forced_eos_tokens, !processing.forced_eos_tokens.empty());
    if (processing.decay.factor != 1)
        json["exponential_decay_length_penalty"] = {processing.decay.start, processing.decay.factor};
    add("min_length", lengths.min_length, lengths.min_length > 0);
    if (lengths.min_new_tokens) json["min_new_tokens"] = *lengths.min_new_tokens;
    if (lengths.max_new_tokens) json["max_new_tokens"] = *lengths.max_new_tokens;
    if (lengths.max_length) json["max_length"] = *lengths.max_length;
    return json;
}

void set_lengths(const FileLengths& file, const std::function<bool(const char*)>& says, int max_positions,
                 spec::Request& request) {
    spec::LogitProcessing& processing = request.processing;
    const auto prompt = static_cast<int>(request.prompt.size());
    const int forced = request.beams.forced_tokens;
    if (!says("max_new_tokens") && (file.max_new_tokens || file.max_length)) {
        request.max_new_tokens = file.max_new_tokens ? *file.max_new_tokens - forced : *file.max_length - prompt;
        if (request.max_new_tokens < 1)
            throw std::runtime_error(fmt::format(
                "{} of generation_config.json, of which {}, leaves no room for an answer; give max_new_tokens",
                file.max_new_tokens ? "max_new_tokens" : "max_length",
                file.max_new_tokens ? fmt::format("{} are forced", forced)
                                    : fmt::format("the prompt takes {}", prompt)));
    }
    if (!says("min_new_tokens")) {
        if (file.min_new_tokens) processing.min_new_tokens = std::max(0, *file.min_new_tokens - forced);
        if (!file.min_new_tokens && file.min_length > prompt) processing.min_new_tokens = file.min_length - prompt;
    }
    processing.decay.start -= forced;
    processing.forced_eos_at = std::min(request.max_new_tokens, max_positions - prompt) - 1;
}

} // namespace entrodraft::launch
