// See field_names.h.
#include "launch/io/field_names.h"

#include "launch/cli/option_set.h"
#include "launch/cli/options.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace entrodraft::launch {

namespace {

// Request fields of OpenAI's API, vLLM, llama.cpp's server, TGI and transformers that are not served here.
struct ForeignField {
    const char* names;             // separated by blanks
    const char* harmless;          // JSON list of values that ask only for what is served; null is always one of them
    const char* remedy;            // the alternative
    bool of_conversations = false; // changes the prompt's text if a template writes it, and nothing else
};

constexpr ForeignField kForeignFields[] = {
    {"n best_of", "[1]", "give num_samples, or with beam search num_return_sequences"},
    {"prompt_logprobs", "[false]", "log-probabilities are of new tokens alone; leave it out"},
    {"top_logprobs", "[0, false]", "give logprobs, a number"},
    {"functions", "[[]]", "give tools, a list of objects"},
    {"tool_choice function_call", R"(["none", "auto"])", "texts are not held to a tool; leave it out"},
    {"parallel_tool_calls", "[true, false]", "texts are not held to tools; leave it out"},
    {"response_format", R"([{"type": "text"}])", "it is of OpenAI's API; give json_schema"},
    {"guided_json guided_regex guided_grammar guided_choice guided_decoding structured_outputs", R"([""])",
     "give json_schema, regex or grammar"},
    {"guided_decoding_backend guided_whitespace_pattern", R"([""])", "not supported; leave it out"},
    {"stream", "[false]", "a result is written once its text is complete; leave it out"},
    {"store", "[false]", "results are in the output alone; leave it out"},
    {"stream_options", "[]", "a result is written once its text is complete; leave it out"},
    {"suffix", R"([""])", "text is not filled in before a suffix; leave it out"},
    {"echo return_full_text", "[false]", "text is what follows the prompt; leave it out, and join them yourself"},
    {"num_beam_groups", "[1]", "beams are not in groups; leave it out"},
    {"use_beam_search", "[false]", "give num_beams"},
    {"diversity_penalty penalty_alpha", "[0]", "there is no diverse or contrastive search; leave it out"},
    {"stop_token_ids eos_token_id", "[[]]", "a text ends at the model's own end tokens; leave it out, or give stop"},
    {"include_stop_str_in_output", "[false]", "text ends before the stop string; leave it out"},
    {"skip_special_tokens spaces_between_special_tokens detokenize", "[true]",
     "text leaves special tokens out; leave it out, and take token_ids"},
    {"add_special_tokens", "[]",
     "a prompt gets the tokenizer's special tokens, messages those of the template; leave it out, or give "
     "prompt_token_ids"},
    {"truncate_prompt_tokens truncate", "[]", "prompts are not truncated; shorten the prompt"},
    {"bad_words bad_words_ids suppress_tokens begin_suppress_tokens", "[[]]",
     "give banned_tokens, a list of token ids"},
    {"allowed_token_ids force_words_ids sequence_bias forced_bos_token_id forced_eos_token_id", "[[]]",
     "not supported; leave it out, or give logit_bias or banned_tokens"},
    {"typical_p guidance_scale tfs_z encoder_repetition_penalty", "[1]", "not supported; leave it out"},
    {"epsilon_cutoff eta_cutoff encoder_no_repeat_ngram_size mirostat xtc_probability dry_multiplier dynatemp_range",
     "[0]", "not supported; leave it out"},
    {"max_time t_max_predict_ms", "[]", "a text has no time limit; leave it out, or give max_new_tokens"},
    {"lora_request lora", "[[]]", "adapters are not supported; merge them into the checkpoint"},
    {"prompt_embeds image_data multi_modal_data", "[[]]", "prompts are text or token ids; leave it out"},
    {"documents enable_thinking reasoning_effort", R"([[], {}])", "give it in chat_template_kwargs", true},
    {"chat_template", R"([""])", "use --chat-template, or leave it out", true},
    {"add_generation_prompt continue_final_message", "[]",
     "leave it out: a last message of the assistant is continued, after any other its answer begins", true},
};

// Names that differ only in case, dashes and underscores are the same: "topK", "top-k". Very short names are exact.
std::string folded_field(std::string_view name) {
    constexpr std::size_t kShortest = 3;
    if (name.size() < kShortest) return std::string(name);
    std::string letters;
    for (const char c : name)
        if (std::isalnum(static_cast<unsigned char>(c)))
            letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return letters;
}

// Entries by their folded names.
template <typename Entry> using ByName = std::map<std::string, Entry>;
template <typename Entry> void add_names(ByName<Entry>& all, const std::string& names, const Entry& entry) {
    for (const std::string& name : split_list(names, ' '))
        all.emplace(folded_field(name), entry);
}

bool is_our_field(const std::string& name) {
    for (const char* of_every_line : {"id", "prompt", "messages", "prompt_token_ids", "decoder_prompt", "metadata",
                                      "do_sample", "tools", "chat_template_kwargs"})
        if (name == of_every_line) return true;
    return std::ranges::any_of(line_fields(), [&](const LineField& field) { return name == field.name; });
}

// Returns what sets the named field for the whole run: "use --replicas"; empty: nothing does.
std::string remedy_of_the_run(const std::string& name) {
    static const ByName<std::string> options = [] {
        ByName<std::string> all;
        for (const OptionGroup& group : groups_of<GenerateOptions>())
            for (const OptionSpec& option : group.options)
                if (!is_our_field(field_of_option(option.name))) add_names(all, option.name, option.name);
        return all;
    }();
    if (const auto found = options.find(folded_field(name)); found != options.end()) return "use --" + found->second;
    const auto is_option = [](std::string_view other) {
        return options.contains(folded_field(other)) || is_our_field(field_of_option(std::string(other)));
    };
    return remedy_for_foreign_option(name, is_option, true);
}

// Returns the field of a line that a similar name probably means.
std::optional<std::string> meant_field(const std::string& name) {
    static const ByName<const LineField*> fields = [] {
        ByName<const LineField*> all;
        for (const LineField& field : line_fields())
            add_names(all, fmt::format("{} {}", field.name, field.elsewhere), &field);
        return all;
    }();
    const std::string letters = folded_field(name);
    if (const auto same = fields.find(letters); same != fields.end()) return same->second->name;
    constexpr std::size_t kMaxSlips = 2, kShortest = 9; // shorter words resemble each other by chance
    for (const LineField& field : line_fields())
        if (const std::string known = folded_field(field.name); known.size() >= kShortest &&
                                                                letters.size() <= known.size() + kMaxSlips &&
                                                                edit_distance(letters, known) <= kMaxSlips)
            return field.name;
    return std::nullopt;
}

// Returns whether it is a request field of another program. Throws if its value asks for something.
bool is_foreign_field(const std::string& name, const Json& value, bool is_conversation) {
    static const ByName<const ForeignField*> fields = [] {
        ByName<const ForeignField*> all;
        for (const ForeignField& field : kForeignFields)
            add_names(all, field.names, &field);
        return all;
    }();
    const auto found = fields.find(folded_field(name));
    if (found == fields.end()) return false;
    const ForeignField& foreign = *found->second;
    if (foreign.of_conversations && !is_conversation) return false;
    const Json harmless = Json::parse(foreign.harmless);
    if (value.is_null() || std::ranges::find(harmless, value) != harmless.end()) return true;
    throw std::runtime_error(shown_field(name) + ": " + foreign.remedy);
}

} // namespace

std::string shown_field(const std::string& name) {
    constexpr std::size_t kMaxShown = 40; // bytes
    return "field " + name.substr(0, kMaxShown);
}

void drop_nulls(Json& object) {
    for (auto field = object.begin(); field != object.end();)
        field = field->is_null() ? object.erase(field) : std::next(field);
}

std::vector<std::string> own_fields(const Json& object, bool is_conversation) {
    std::vector<std::string> own;
    for (const auto& [name, value] : object.items()) {
        if (is_our_field(name) || is_foreign_field(name, value, is_conversation)) continue;
        if (value.is_null()) { // null asks for nothing
            own.push_back(name);
            continue;
        }
        if (const std::string remedy = remedy_of_the_run(name); !remedy.empty())
            throw std::runtime_error(fmt::format("{} cannot be set by line; {}, or put it into metadata if it is data "
                                                 "of your own",
                                                 shown_field(name), remedy));
        if (const auto field = meant_field(name); field && !object.contains(*field))
            throw std::runtime_error(fmt::format("{} is unknown; did you mean {}?", shown_field(name), *field));
        own.push_back(name);
    }
    return own;
}

} // namespace entrodraft::launch
