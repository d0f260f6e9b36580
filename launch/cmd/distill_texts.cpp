// See distill_texts.h.
#include "launch/cmd/distill_texts.h"

#include "launch/failure.h"
#include "launch/io/progress.h"
#include "launch/pair_engine.h"
#include "launch/phase.h"
#include "launch/signals.h"

#include <fmt/format.h>

namespace entrodraft::launch {

std::vector<std::vector<spec::TokenId>> continue_all(dist::Session& session, ModelPair& models,
                                                     const std::vector<spec::Request>& requests, bool quiet) {
    const Drafters drafters(session, models, {}, session.timeout_seconds());
    PairEngine::Setting setting;
    if (!models.drafts.empty()) setting.drafter = draft_alone(models, 0);
    setting.rules = {spec::StopRuleOptions(kDefaultStopRule)};
    setting.costs = {std::nullopt};
    PairEngine engine(session, models, drafters, setting);
    std::vector<std::vector<spec::TokenId>> texts(requests.size());
    std::int64_t next = 0, done = 0, new_tokens = 0;
    Progress progress(quiet || !models.layout.is_coordinator());
    spec::EngineCallbacks callbacks;
    callbacks.next_request = [&]() -> std::optional<spec::Request> {
        if (next == std::ssize(requests)) return std::nullopt;
        spec::Request request = requests[static_cast<std::size_t>(next)];
        request.id = std::to_string(next++); // by which on_complete() finds it
        return request;
    };
    callbacks.on_complete = [&](const spec::Request& request, spec::Completion completion) {
        ++done;
        new_tokens += std::ssize(completion.tokens);
        texts[std::stoull(request.id)] = std::move(completion.tokens);
        progress.update(static_cast<double>(done) / static_cast<double>(requests.size()), done, new_tokens);
    };
    if (engine.engine().run(callbacks, stop_signal()) == spec::RunEnd::interrupted)
        throw OrderlyFailure(kStopped, "stopped before all prompts were continued; --resume continues them anew");
    return texts;
}

void share_all(dist::Session& session, std::vector<spec::ScoredText>& texts) {
    texts.resize(static_cast<std::size_t>(from_writer(session, std::ssize(texts))));
    for (spec::ScoredText& text : texts)
        spec::broadcast(text, session.world(), session.deadline());
}

void score_all(dist::Session& session, ModelPair& models, const spec::ScorerOptions& options,
               std::vector<spec::ScoredText>& texts, bool quiet) {
    share_all(session, texts);
    spec::TargetScorer scorer(options, models.target.get(), *models.replica);
    StatusLine line(quiet || !models.layout.is_coordinator());
    for (std::size_t i = 0; i < texts.size(); ++i) {
        scorer.score(texts[i], i);
        line.update(static_cast<double>(i + 1) / static_cast<double>(texts.size()),
                    [&](double) { return fmt::format("{} of {} texts read again", i + 1, texts.size()); });
    }
}

} // namespace entrodraft::launch
