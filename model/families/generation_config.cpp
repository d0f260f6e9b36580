// Fields of generation_config.json: see generation_config.h.
#include "model/families/generation_config.h"

#include "model/families/fields.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace entrodraft::model {

namespace {

using Json = nlohmann::json;

constexpr const char* kGenerationFile = "generation_config.json";

// The fields of that file, each checked when it is asked for.
class GenerationFields {
  public:
    explicit GenerationFields(const Fields& fields) : fields_(fields) {}

    std::optional<double> number(const char* name) const {
        const Json* value = fields_.find(name);
        if (value == nullptr) return std::nullopt;
        if (!value->is_number() || !std::isfinite(value->get<double>())) refuse(name, *value, "a number");
        return value->get<double>();
    }
    std::optional<int> count(const char* name) const {
        if (fields_.find(name) == nullptr) return std::nullopt;
        return fields_.count(name, 0);
    }
    std::optional<int> size(const char* name) const {
        if (fields_.find(name) == nullptr) return std::nullopt;
        return fields_.size(name);
    }
    std::optional<TokenId> token(const char* name) const {
        const Json* value = fields_.find(name);
        return value == nullptr ? std::nullopt : std::optional(to_token(name, *value));
    }
    // Reads a number or a list.
    std::vector<TokenId> one_or_more_tokens(const char* name) const {
        const Json* value = fields_.find(name);
        if (value == nullptr) return {};
        return to_tokens(name, value->is_array() ? *value : Json::array({*value}));
    }
    // Reads a list. Negative numbers are not tokens and suppress nothing in transformers.
    std::vector<TokenId> suppressed_tokens(const char* name) const {
        std::vector<TokenId> tokens;
        for (const Json& each : list(name))
            if (!each.is_number_integer() || each.is_number_unsigned() || each.get<std::int64_t>() >= 0)
                tokens.push_back(to_token(name, each));
        return tokens;
    }
    std::vector<std::vector<TokenId>> bad_words() const {
        std::vector<std::vector<TokenId>> words;
        for (const Json& each : list("bad_words_ids"))
            words.push_back(to_word("bad_words_ids", each));
        return words;
    }
    std::vector<GenerationConfig::BiasedTokens> sequence_bias() const;
    std::optional<GenerationConfig::Decay> decay() const;
    std::vector<std::string> stop_strings() const;
    std::optional<std::string> early_stopping() const;

  private:
    [[noreturn]] void refuse(const char* name, const Json& value, const char* wanted) const {
        fields_.refuse("field '" + std::string(name) + "' holds " + shown(value) + ", which is not " + wanted);
    }
    Json list(const char* name) const {
        const Json* value = fields_.find(name);
        if (value == nullptr) return Json::array();
        if (!value->is_array()) refuse(name, *value, "a list");
        return *value;
    }
    TokenId to_token(const char* name, const Json& value) const {
        constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<TokenId>::max());
        if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMost) refuse(name, value, "a token id");
        return value.get<TokenId>();
    }
    std::vector<TokenId> to_tokens(const char* name, const Json& values) const {
        std::vector<TokenId> tokens;
        for (const Json& each : values)
            tokens.push_back(to_token(name, each));
        return tokens;
    }
    std::vector<TokenId> to_word(const char* name, const Json& value) const {
        if (!value.is_array() || value.empty()) refuse(name, value, "a list of token ids");
        return to_tokens(name, value);
    }

    const Fields& fields_;
};

// Reads [[[3, 4], -2.5], ...]. Of equal sequences the last one's bias counts, as in transformers.
std::vector<GenerationConfig::BiasedTokens> GenerationFields::sequence_bias() const {
    constexpr const char* kName = "sequence_bias";
    std::vector<GenerationConfig::BiasedTokens> biases;
    for (const Json& each : list(kName)) {
        if (!each.is_array() || each.size() != 2 || !each[1].is_number() || !std::isfinite(each[1].get<float>()))
            refuse(kName, each, "a list of token ids and a number");
        std::vector<TokenId> tokens = to_word(kName, each[0]);
        auto found = std::ranges::find(biases, tokens, &GenerationConfig::BiasedTokens::tokens);
        if (found == biases.end()) found = biases.insert(found, {std::move(tokens), 0});
        found->bias = each[1].get<float>();
    }
    return biases;
}

std::optional<GenerationConfig::Decay> GenerationFields::decay() const {
    constexpr const char* kName = "exponential_decay_length_penalty";
    const Json* value = fields_.find(kName);
    if (value == nullptr) return std::nullopt;
    const bool is_pair = value->is_array() && value->size() == 2 && (*value)[0].is_number_integer() &&
                         (*value)[1].is_number() && std::abs((*value)[0].get<double>()) <= kMaxSize &&
                         (*value)[1].get<double>() > 0;
    if (!is_pair) refuse(kName, *value, "a number of tokens and a factor above 0");
    return GenerationConfig::Decay{(*value)[0].get<int>(), (*value)[1].get<double>()};
}

std::vector<std::string> GenerationFields::stop_strings() const {
    constexpr const char* kName = "stop_strings";
    const Json* value = fields_.find(kName);
    std::vector<std::string> strings;
    if (value == nullptr) return strings;
    for (const Json& each : value->is_array() ? *value : Json::array({*value})) {
        if (!each.is_string()) refuse(kName, each, "a string");
        strings.push_back(each.get<std::string>());
    }
    return strings;
}

std::optional<std::string> GenerationFields::early_stopping() const {
    constexpr const char* kName = "early_stopping";
    const Json* value = fields_.find(kName);
    if (value == nullptr) return std::nullopt;
    if (*value == "never") return "never";
    return fields_.boolean(kName, false) ? "true" : "false";
}

// A field, and the value with which it has no effect.
struct NeutralField {
    const char* name;
    Json value;
};

// Fields that would change texts in a way that this program does not support.
const std::vector<NeutralField>& fields_not_served() {
    static const std::vector<NeutralField> all = {{"num_beams", 1},
                                                  {"num_beam_groups", 1},
                                                  {"diversity_penalty", 0},
                                                  {"penalty_alpha", 0},
                                                  {"guidance_scale", 1},
                                                  {"num_return_sequences", 1},
                                                  {"force_words_ids", nullptr},
                                                  {"constraints", nullptr},
                                                  {"dola_layers", nullptr},
                                                  {"watermarking_config", nullptr},
                                                  {"token_healing", false},
                                                  {"remove_invalid_values", false},
                                                  {"max_time", nullptr},
                                                  {"assistant_ensemble_weight", nullptr}};
    return all;
}

// Adds the fields that the file has with another value.
void add_asking_fields(const Fields& fields, const std::vector<NeutralField>& names,
                       std::vector<GenerationConfig::Field>& to) {
    for (const auto& [name, neutral] : names)
        if (const Json* value = fields.find(name); value != nullptr && *value != neutral)
            to.push_back({name, shown(*value)});
}

// Without do_sample the others have no effect, in transformers too.
void read_file_sampling(const Fields& fields, GenerationConfig& to) {
    if (!fields.boolean("do_sample", false)) return;
    constexpr int kTopK = 50; // transformers' own
    const GenerationFields checked(fields);
    to.temperature = checked.number("temperature").value_or(1);
    to.top_k = checked.count("top_k").value_or(kTopK);
    to.top_p = checked.number("top_p").value_or(1);
    to.min_p = checked.number("min_p").value_or(0);
    add_asking_fields(fields, {{"do_sample", false}, {"temperature", 1}, {"top_k", kTopK}, {"top_p", 1}, {"min_p", 0}},
                      to.sampling);
    add_asking_fields(fields, {{"typical_p", 1}, {"top_h", nullptr}, {"epsilon_cutoff", 0}, {"eta_cutoff", 0}},
                      to.not_served);
}

// config.json's own fields take precedence over those of the text model in it.
Json config_as_generation(const std::filesystem::path& file) {
    Json json = read_object(file);
    for (const char* part : {"decoder", "generator", "text_config"}) {
        if (!json.contains(part) || !json[part].is_object()) continue;
        const Json inner = json[part];
        for (const auto& [name, value] : inner.items())
            if (json.value(name, Json()).is_null()) json[name] = value;
        break;
    }
    return json;
}

} // namespace

GenerationConfig read_generation_config(const std::filesystem::path& directory, const ModelConfig& config) {
    GenerationConfig read;
    const bool has_file = std::filesystem::exists(directory / kGenerationFile);
    read.file = directory / (has_file ? kGenerationFile : "config.json");
    const Json json = has_file ? read_object(read.file) : config_as_generation(read.file);
    const Fields fields(json, read.file.string());
    const GenerationFields checked(fields);
    read.repetition_penalty = checked.number("repetition_penalty");
    read.encoder_repetition_penalty = checked.number("encoder_repetition_penalty");
    read.no_repeat_ngram_size = checked.count("no_repeat_ngram_size");
    read.encoder_no_repeat_ngram_size = checked.count("encoder_no_repeat_ngram_size");
    read.min_length = checked.count("min_length");
    read.min_new_tokens = checked.count("min_new_tokens");
    read.sequence_bias = checked.sequence_bias();
    read.bad_words = checked.bad_words();
    read.suppress_tokens = checked.suppressed_tokens("suppress_tokens");
    read.begin_suppress_tokens = checked.suppressed_tokens("begin_suppress_tokens");
    read.forced_eos_tokens = checked.one_or_more_tokens("forced_eos_token_id");
    if (!config.has_encoder()) read.forced_bos_token = checked.token("forced_bos_token_id");
    read.decay = checked.decay();
    read.stop_strings = checked.stop_strings();
    read.length_penalty = checked.number("length_penalty");
    read.early_stopping = checked.early_stopping();
    read.max_new_tokens = checked.size("max_new_tokens");
    read.max_length = checked.size("max_length");
    add_asking_fields(fields, {{"max_new_tokens", nullptr}, {"max_length", nullptr}}, read.lengths);
    add_asking_fields(fields, fields_not_served(), read.not_served);
    read_file_sampling(fields, read);
    return read;
}

void read_text_ends(const std::filesystem::path& directory, ModelConfig& config) {
    const std::filesystem::path file = directory / kGenerationFile;
    if (!std::filesystem::exists(file)) return;
    const Json json = read_object(file);
    const Fields fields(json, file.string());
    if (fields.find("eos_token_id") != nullptr) config.eos_token_ids = fields.token_ids("eos_token_id");
    if (config.has_encoder()) read_decoder_start(fields, config);
}

} // namespace entrodraft::model
