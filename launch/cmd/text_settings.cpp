// See text_settings.h.
#include "launch/cmd/text_settings.h"

#include "launch/cli/generation_defaults.h"
#include "launch/io/requests.h"
#include "launch/load/same_models.h"
#include "spec/verify/random.h"

#include <filesystem>
#include <fmt/format.h>
#include <string>
#include <string_view>

namespace entrodraft::launch {

namespace {

std::string shown(std::uint64_t digest) {
    return fmt::format("{:016x}", digest);
}

// Shortens a text that may be long.
Json shown(const std::string& text) {
    constexpr std::size_t kMaxBytes = 80;
    if (text.size() <= kMaxBytes) return text;
    return fmt::format("{} bytes, digest {}", text.size(), shown(hash_of_id(text)));
}

// Returns the digest of a file, or the name itself if it names no file.
Json contents_of(const std::string& name) {
    std::error_code ignored; // on an error the name is no file
    if (!std::filesystem::is_regular_file(name, ignored)) return name;
    return "digest " + shown(digest_of_file(name));
}

// A new member breaks the build here, until it is listed below or is known not to change the text.
Json settings_of(const spec::Request& request) {
    const auto& [id, sequence_key, prompt, given, source, max_new_tokens, sampling, processing, beams, num_samples,
                 sample, ignore_eos, stop_rule, stop_strings, logprobs, metadata, response, model, echo, streams,
                 plain] = request;
    const auto& [repetition_penalty, presence_penalty, frequency_penalty, no_repeat_ngram_size, min_new_tokens,
                 logit_bias, banned_tokens, constraint, grammar, encoder_repetition_penalty,
                 encoder_no_repeat_ngram_size, sequence_bias, suppress_tokens, begin_suppress_tokens, forced_bos_token,
                 forced_eos_tokens, forced_eos_at, decay] = processing; // from `constraint` on see json_of_file_rules
    const auto& [num_beams, length_penalty, early_stopping, num_return_sequences, forced_tokens] = beams;
    Json settings = {{"max_new_tokens", max_new_tokens}};
    visit_options(sampling, [&](const char* name, const auto& option) { settings[name] = option; });
    settings.update({{"repetition_penalty", repetition_penalty},
                     {"presence_penalty", presence_penalty},
                     {"frequency_penalty", frequency_penalty},
                     {"no_repeat_ngram_size", no_repeat_ngram_size},
                     {"min_new_tokens", min_new_tokens},
                     {"logit_bias", logit_bias},
                     {"banned_tokens", banned_tokens},
                     {"num_samples", num_samples},
                     {"ignore_eos", ignore_eos},
                     {"logprobs", logprobs ? Json(*logprobs) : Json()},
                     {"num_beams", num_beams},
                     {"stop", Json::array()}});
    for (const std::string& stop : stop_strings)
        settings["stop"].push_back(shown(stop));
    if (constraint.is_on()) settings[to_string(constraint.language)] = shown(constraint.text);
    if (num_beams > 0)
        settings.update({{"length_penalty", length_penalty},
                         {"early_stopping", spec::to_string(early_stopping)},
                         {"num_return_sequences", num_return_sequences}});
    return settings;
}

// Returns whether other drafts could make other texts.
bool drafts_decide(const SpeculationOptions& speculation) {
    const spec::AcceptanceOptions& acceptance = speculation.acceptance;
    return !speculation.drafter.kinds.empty() && (acceptance.is_lossy() || acceptance.kind != spec::Acceptance::gumbel);
}

// Returns the drafts, and the options that determine their proposals, as they were given.
Json drafting_settings(const GenerateOptions& options, const ModelPair& models) {
    Json settings = {{"drafter", describe(options.speculation.drafter)},
                     {"draft_dtype", model::to_string(models.placed.draft_type())},
                     {"draft_digests", Json::array()}};
    for (const std::string& draft : options.models.drafts)
        if (self_draft_of(draft)) settings["draft"] = draft; // layers of the target
    if (const auto& drafts = models.placed.drafts; !drafts.empty() && drafts.front().config.picks_outputs) {
        const std::vector<model::TokenId>& tokens = drafts.front().config.output_tokens;
        settings["draft_vocab"] = shown(spec::hash_bytes(tokens.data(), tokens.size() * sizeof(model::TokenId)));
    }
    for (const std::uint64_t digest : models.opened.digests.drafts)
        settings["draft_digests"].push_back(shown(digest));
    for (const OptionGroup& group : groups_of<GenerateOptions>())
        for (const OptionSpec& option : group.options) {
            const std::string_view name = option.name;
            const bool is_of_drafts = group.title == "Drafters" || group.title == "Speculation" ||
                                      name == "draft-vocabulary" || name == "draft-window";
            if (!is_of_drafts || name == "drafter" || name == "acceptance" || !options.given.given(option.name))
                continue; // these two are in the settings already
            Json& values = settings[field_of_option(option.name)] = Json::array();
            for (const std::string& text : options.given.texts(option.name))
                values.push_back(option.is_file() ? contents_of(text) : Json(text));
        }
    return settings;
}

} // namespace

Json text_settings(const GenerateOptions& options, const ModelPair& models, const PromptLimits& limits) {
    const RequestDefaults& requests = options.requests;
    const ChatTemplateOptions& chat = options.models.chat_template;
    Json settings = {{"target_digest", shown(models.opened.digests.target)},
                     {"dtype", model::to_string(models.placed.target_type)},
                     {"activation_dtype", model::to_string(options.models.activations)},
                     {"kv_dtype", models.placed.kv_type ? Json(model::to_string(*models.placed.kv_type)) : Json()},
                     {"max_context", limits.max_positions}};
    if (models.opened.random_weights) settings["random_weights"] = *models.opened.random_weights;
    settings.update(settings_of(request_like(requests)));
    if (const Json rules = json_of_file_rules(requests); !rules.empty()) settings["generation_config"] = rules;
    settings.update({{"openai_temperature", requests.body_temperature},
                     {"chat", requests.chat},
                     {"system", requests.system ? shown(*requests.system) : Json()},
                     {"chat_template", chat.name.empty() ? Json() : contents_of(chat.name)},
                     {"chat_date", chat.date.empty() ? Json() : Json(chat.date)}});
    if (requests.body_new_tokens) settings["openai_max_tokens"] = *requests.body_new_tokens;
    const SpeculationOptions& speculation = options.speculation;
    settings["acceptance"] =
        drafts_decide(speculation) ? describe(speculation.acceptance) : to_string(spec::Acceptance::gumbel);
    if (drafts_decide(speculation)) settings.update(drafting_settings(options, models));
    return settings;
}

} // namespace entrodraft::launch
