// Makes records from requests: see recording_run.h.
#include "launch/cmd/recording_run.h"

#include "launch/cli/generation_defaults.h"
#include "launch/io/json_line.h"
#include "launch/start/phase.h"

#include <algorithm>

namespace entrodraft::launch {

namespace {

spec::StopRuleOptions default_rule(int max_tokens) {
    spec::StopRuleOptions rule(kDefaultStopRule);
    rule.max_tokens = max_tokens;
    return rule;
}

} // namespace

// Decodes with gumbel, which makes no difference to greedy text.
RecordingRun::RecordingRun(dist::Session& session, ModelPair& models, const Drafters& drafters,
                           const RecordingPlan& plan)
    : session_(session), models_(models), plan_(plan),
      engine_(session, models, drafters,
              {draft_alone(models, 0), {default_rule(plan.max_draft_tokens)}, {plan.costs}, {}}) {
    std::vector<model::Decoder*> drafts;
    for (std::size_t draft = 0; models.placed.layout.is_coordinator() && draft < models.loaded.drafts.size(); ++draft)
        drafts.push_back(&drafters.draft_model(draft));
    spec::RecorderOptions recorder;
    recorder.limits = models.draft_limits();
    recorder.max_draft_tokens = plan.max_draft_tokens;
    recorder.draft_slots = 1 + kChains;
    recorder.trees = plan.trees;
    recorder.timeout_seconds = session.timeout_seconds();
    recorder_.emplace(recorder, models.engine_parts(nullptr), drafts,
                      models.placed.layout.is_coordinator() ? drafters.head() : nullptr);
}

std::optional<spec::RecordedLine> RecordingRun::record(const spec::Request* request, const volatile int& stop_signal) {
    enum Next : std::int64_t { failed, ended, stopped };
    DecodedText text = engine_.decode(request, stop_signal);
    if (text.end == spec::RunEnd::interrupted) return std::nullopt;
    spec::Completion& decoded = text.completion;
    const auto next = from_writer(session_, !decoded.failure.empty()                            ? failed
                                            : decoded.finish_reason == spec::FinishReason::stop ? stopped
                                                                                                : ended);
    if (next == failed) return spec::RecordedError{request ? request->id : "null", decoded.failure};
    std::vector<spec::TokenId> beyond;
    if (next == stopped) { // a draft that runs on past the end is compared with these tokens
        spec::Request longer;
        if (request) {
            longer = *request;
            longer.stop_strings.clear();
            const int most = static_cast<int>(decoded.tokens.size()) + plan_.max_draft_tokens;
            longer.max_new_tokens = std::min(longer.max_new_tokens, most);
        }
        DecodedText again = engine_.decode(request ? &longer : nullptr, stop_signal);
        if (again.end == spec::RunEnd::interrupted) return std::nullopt;
        beyond = std::move(again.completion.tokens);
    }
    if (!request) {
        recorder_->record(nullptr, nullptr);
        return spec::RecordedError{};
    }
    spec::TextRecord record;
    record.id = request->id;
    record.new_tokens = static_cast<int>(decoded.tokens.size());
    record.finish_reason = decoded.finish_reason;
    record.max_new_tokens = request->max_new_tokens;
    record.ignore_eos = request->ignore_eos;
    record.seed = request->sampling.seed;
    record.temperature = request->sampling.temperature;
    record.pieces = pieces_of(decoded.tokens);
    record.prompt = request->prompt;
    record.token = beyond.size() > decoded.tokens.size() ? std::move(beyond) : std::move(decoded.tokens);
    recorder_->record(&record, request);
    add_token_texts(record);
    return record;
}

// Adds the text of each token after another token, because the first token of a text may lose its space.
void RecordingRun::add_token_texts(spec::TextRecord& record) const {
    if (!models_.opened.target.tokenizer) return;
    const auto add = [&](spec::TokenId token) {
        if (token < 0 || record.token_texts.count(token) > 0) return;
        model::StreamDecoder decoder(*models_.opened.target.tokenizer, true);
        if (!record.token.empty()) decoder.push(record.token.front());
        const std::string text = decoder.push(token);
        record.token_texts[token] = text + decoder.finish();
    };
    for (const spec::TokenId token : record.prompt)
        add(token);
    for (const spec::DraftRecord& draft : record.drafts)
        for (std::size_t i = 0; i < draft.places(); ++i)
            if (draft.token[i] != record.token[i]) add(draft.token[i]);
}

// Returns the text that each token adds. The last piece ends with bytes held back for characters cut between tokens.
std::vector<std::string> RecordingRun::pieces_of(const std::vector<spec::TokenId>& tokens) const {
    if (!models_.opened.target.tokenizer) return std::vector<std::string>(tokens.size());
    model::StreamDecoder decoder(*models_.opened.target.tokenizer, true);
    std::vector<std::string> pieces;
    for (const spec::TokenId token : tokens)
        pieces.push_back(decoder.push(token));
    if (!pieces.empty()) pieces.back() += decoder.finish();
    return pieces;
}

namespace {

// Returns the settings, other than sampling, that change a prompt's text or where it ends.
Json json_of(const RequestDefaults& requests, const ChatTemplateOptions& chat) {
    const spec::LogitProcessing& processing = requests.processing;
    Json json = {{"repetition_penalty", processing.repetition_penalty},
                 {"presence_penalty", processing.presence_penalty},
                 {"frequency_penalty", processing.frequency_penalty},
                 {"no_repeat_ngram_size", processing.no_repeat_ngram_size},
                 {"min_new_tokens", processing.min_new_tokens},
                 {"banned_tokens", processing.banned_tokens},
                 {"stop", requests.stop_strings},
                 {"chat", requests.chat}};
    json["logit_bias"] = Json::object();
    for (const auto& [token, bias] : processing.logit_bias)
        json["logit_bias"][std::to_string(token)] = bias;
    if (const Json rules = json_of_file_rules(requests); !rules.empty()) json["generation_config"] = rules;
    if (requests.system) json["system"] = *requests.system;
    if (!chat.name.empty()) json["chat_template"] = chat.name;
    if (!chat.date.empty()) json["chat_date"] = chat.date;
    return json;
}

} // namespace

spec::RecordingHead recording_head(const ModelPair& models, const ModelOptions& options, const std::string& input,
                                   const RequestDefaults& requests, int max_draft_tokens) {
    spec::RecordingHead head;
    head.target = {options.target, model::to_string(models.placed.target_type),
                   models.opened.target.config.max_positions};
    for (std::size_t draft = 0; draft < models.loaded.drafts.size(); ++draft) {
        head.drafts.push_back({options.drafts.at(draft), model::to_string(models.placed.drafts.at(draft).type),
                               models.loaded.drafts[draft]->config().max_positions});
    }
    if (models.opened.draft_head())
        head.drafts.push_back(
            {options.head,
             model::to_string(options.draft_dtype.value_or(models.opened.draft_head()->config().stored_type)),
             models.opened.draft_head()->config().max_positions, models.opened.draft_head()->max_tokens});
    head.noisy = !requests.sampling.greedy();
    head.sampling = requests.sampling;
    head.requests = json_of(requests, options.chat_template).dump();
    head.max_draft_tokens = max_draft_tokens;
    head.vocab_size = models.opened.vocab_size;
    head.max_positions = models.opened.target.config.max_positions;
    head.eos_tokens = models.draft_limits().eos_tokens;
    head.input = input;
    return head;
}

} // namespace entrodraft::launch
