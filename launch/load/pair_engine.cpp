// See pair_engine.h.
#include "launch/load/pair_engine.h"

#include <algorithm>
#include <utility>

namespace entrodraft::launch {

PairEngine::PairEngine(dist::Session& session, ModelPair& models, const Drafters& drafters, const Setting& setting)
    : drafter_(drafters.make(setting.drafter, setting.rules, setting.costs)) {
    spec::EngineOptions engine;
    engine.acceptance = setting.acceptance;
    engine.stop_rule = setting.rules.front();
    engine.costs = setting.costs.front();
    engine.n_slots = models.placed.cache.sequences;
    engine.num_beams = models.placed.cache.num_beams;
    engine.vocab_size = models.opened.vocab_size;
    engine.timeout_seconds = session.timeout_seconds();
    engine.synthetic_acceptance = setting.synthetic_acceptance;
    spec::EngineParts parts = models.engine_parts(drafter_.get());
    if (setting.drafter.kinds.empty()) parts.sharded_draft = nullptr; // no rank waits for drafts
    if (setting.watch) parts.watch = setting.watch;
    engine_ = std::make_unique<spec::Engine>(engine, parts);
}

DecodedText PairEngine::decode(const spec::Request* request, const volatile int& stop_signal, const OnRound& on_round,
                               const EndsText& ends_text) {
    DecodedText text;
    spec::EngineCallbacks callbacks;
    if (request) {
        callbacks.next_request = [&]() -> std::optional<spec::Request> {
            const spec::Request* next = std::exchange(request, nullptr);
            return next ? std::optional(*next) : std::nullopt;
        };
        callbacks.on_round = on_round;
        callbacks.ends_text = ends_text;
        callbacks.on_complete = [&](const spec::Request&, spec::Completion completion) {
            text.completion = std::move(completion);
        };
    }
    text.end = engine_->run(callbacks, stop_signal);
    return text;
}

void capture_common_rounds(dist::Session& session, ModelPair& models, const Drafters& drafters,
                           PairEngine::Setting setting, const spec::Request& like, const volatile int& stop_signal) {
    if (!models.placed.device.is_gpu || models.placed.cache.num_beams > 0) return;
    const int cap = setting.drafter.kinds.empty() ? 0 : setting.rules.front().max_tokens;
    for (spec::StopRuleOptions& rule : setting.rules)
        rule.min_tokens = rule.max_tokens; // the rule looks at tokens as usual, and never fires
    setting.synthetic_acceptance = 1;      // so a text of n tokens is one round of n rows
    PairEngine engine(session, models, drafters, setting);
    spec::Request request = like;
    request.prompt = {11 % models.opened.vocab_size};
    if (models.opened.target.config.has_encoder()) request.source = request.prompt;
    request.ignore_eos = true;
    std::vector<int> tokens;
    for (int n = 1; n <= cap; n *= 2)
        tokens.push_back(n);
    tokens.push_back(2 * (cap + 1)); // the second round of this text drafts after a fully accepted draft
    const spec::Request* const next = models.placed.layout.is_coordinator() ? &request : nullptr;
    for (const int n : tokens)
        for (int time = 0; time < 2; ++time) {
            request.max_new_tokens = std::min(n, models.opened.target.config.max_positions - 1);
            if (engine.decode(next, stop_signal).end == spec::RunEnd::interrupted) return;
        }
}

} // namespace entrodraft::launch
