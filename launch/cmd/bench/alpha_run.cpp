// Measuring drafters: see alpha_run.h.
#include "launch/cmd/bench/alpha_run.h"

#include "launch/decode_one.h"
#include "launch/environment.h"
#include "launch/io/report.h"
#include "launch/io/results.h"
#include "launch/phase.h"

#include <algorithm>
#include <memory>
#include <optional>

namespace entrodraft::launch {

namespace {

spec::StopRuleOptions one_token() {
    spec::StopRuleOptions rule("constant", {{"num-draft-tokens", 1}});
    rule.max_tokens = 1;
    return rule;
}

double ratio(double value, std::int64_t of) {
    return of > 0 ? value / static_cast<double>(of) : 0;
}

} // namespace

double AlphaFigure::proposed_share() const {
    return ratio(static_cast<double>(places.proposed), places.asked);
}
double AlphaFigure::accepted_share() const {
    return stats.draft_acceptance_rate();
}
double AlphaFigure::alpha() const {
    return ratio(stats.overlap, stats.overlaps);
}
double AlphaFigure::alpha_of_all() const {
    return ratio(stats.overlap, places.asked);
}
Interval AlphaFigure::interval() const {
    std::vector<double> sums, counts;
    for (const spec::Stats& text : texts) {
        sums.push_back(text.overlap);
        counts.push_back(static_cast<double>(text.overlaps));
    }
    Interval interval = ratio_interval(sums, counts);
    interval.high = std::min(interval.high, 1.0); // as every sum min(p, q) is
    return interval;
}

std::vector<AlphaFigure> measure_alpha(dist::Session& session, ModelPair& models, const Drafters& drafters,
                                       const std::vector<spec::Request>& prompts, const AlphaPlan& plan) {
    const bool coordinates = models.layout.is_coordinator();
    const auto n_prompts = from_writer(session, plan.timeout_seconds, static_cast<std::int64_t>(prompts.size()));
    const std::size_t n_levels = std::max<std::size_t>(1, models.drafts.size());
    const std::vector<spec::StopRuleOptions> rules(n_levels, one_token());
    const std::vector<std::optional<spec::Costs>> no_costs(n_levels);
    Progress progress(plan.quiet || !models.layout.is_writer());
    const auto n_texts =
        static_cast<double>(plan.drafters.size() * plan.temperatures.size()) * static_cast<double>(n_prompts);
    std::int64_t done = 0, new_tokens = 0;
    std::vector<AlphaFigure> figures;
    for (const double temperature : plan.temperatures) {
        for (const DrafterChoice& drafter : plan.drafters) {
            AlphaFigure figure;
            figure.drafter = drafter;
            figure.temperature = temperature;
            spec::EngineOptions options;
            options.acceptance.kind = spec::Acceptance::rejection;
            options.stop_rule = rules.front();
            options.vocab_size = models.vocab_size;
            options.timeout_seconds = plan.timeout_seconds;
            std::unique_ptr<spec::BatchDrafter> own = drafters.make(drafter, rules, no_costs);
            if (own) own = spec::make_every_other_place_drafter(std::move(own), figure.places);
            spec::Engine engine(options, models.engine_parts(own.get()));
            for (std::int64_t i = 0; i < n_prompts; ++i) {
                std::optional<spec::Request> request;
                if (coordinates) {
                    request = prompts[static_cast<std::size_t>(i)];
                    request->sampling.temperature = temperature;
                    request->max_new_tokens = std::min(request->max_new_tokens, plan.max_new_tokens);
                }
                const spec::Stats stats = decode_one(engine, request ? &*request : nullptr, kNoSignal).completion.stats;
                figure.texts.push_back(stats);
                figure.stats += stats;
                new_tokens += stats.new_tokens;
                ++done;
                progress.update(static_cast<double>(done) / n_texts, done, new_tokens);
            }
            figures.push_back(std::move(figure));
        }
    }
    progress.clear();
    return figures;
}

std::string alpha_table(const std::vector<AlphaFigure>& figures) {
    std::vector<std::vector<std::string>> table = {{"drafter", "temperature", "texts", "places", "with a proposal",
                                                    "accepted/drafted", "alpha", "95 % interval",
                                                    "alpha of all places"}};
    for (const AlphaFigure& figure : figures) {
        const Interval interval = figure.interval();
        table.push_back({describe(figure.drafter), format_number(figure.temperature, 2),
                         std::to_string(figure.texts.size()), std::to_string(figure.places.asked),
                         format_number(figure.proposed_share(), 3), format_number(figure.accepted_share(), 4),
                         format_number(figure.alpha(), 4), format_interval(interval, 4),
                         format_number(figure.alpha_of_all(), 4)});
    }
    return format_table(table);
}

Json to_json(const AlphaFigure& figure) {
    const Interval interval = figure.interval();
    return {{"drafter", describe(figure.drafter)},
            {"temperature", figure.temperature},
            {"texts", figure.texts.size()},
            {"new_tokens", figure.stats.new_tokens},
            {"places", figure.places.asked},
            {"proposed", figure.places.proposed},
            {"proposed_share", figure.proposed_share()},
            {"accepted_share", figure.accepted_share()},
            {"alpha", figure.alpha()},
            {"interval_alpha", {interval.low, interval.high}},
            {"alpha_of_all_places", figure.alpha_of_all()}};
}

} // namespace entrodraft::launch
