// Drafters from options: see drafters.h.
#include "launch/load/drafters.h"
#include "spec/draft/beams.h"

#include "launch/io/progress.h"
#include "launch/load/corpus.h"
#include "launch/start/counted.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <stdexcept>
#include <unistd.h>
#include <utility>

namespace entrodraft::launch {

DrafterChoice draft_alone(const ModelPair& models, std::size_t draft) {
    if (models.opened.draft_head()) return {{"head"}, {}};
    return {{"model"}, {draft}};
}

Drafters::Drafters(dist::Session& session, ModelPair& models, const DrafterSources& sources, double timeout_seconds)
    : models_(models), sources_(sources), head_(models.head_modules()) {
    in_agreement(session, timeout_seconds, [&] {
        if (!models_.placed.layout.is_coordinator()) return;
        if (!sources.draft_table.empty())
            table_.emplace(spec::TokenTable::open(sources.draft_table, models_.opened.target.tokenizer->size(),
                                                  models_.opened.target.tokenizer->fingerprint()));
        if (!sources.lookup_corpus.empty())
            corpus_ = open_corpus(sources.lookup_corpus, *models_.opened.target.tokenizer);
    });
}

std::unique_ptr<spec::Drafter> Drafters::make(const DrafterChoice& choice, std::span<const spec::StopRuleOptions> rules,
                                              std::span<const std::optional<spec::Costs>> costs) const {
    if (choice.kinds.empty() || !models_.placed.layout.is_coordinator()) return nullptr;
    spec::DeviceRound* const device = models_.loaded.sharded_draft ? nullptr : models_.loaded.device_round.get();
    if (models_.placed.cache.num_beams > 0)
        return spec::make_beam_drafter(
            draft_model(0), {models_.draft_limits(), models_.placed.clock, models_.placed.cache.sequences}, device);
    spec::DrafterParts parts{{models_.draft_limits(), models_.placed.clock, models_.placed.cache.sequences}};
    for (const std::size_t draft : choice.drafts)
        parts.models.push_back(&draft_model(draft));
    parts.window = models_.opened.draft_window;
    if (models_.opened.vocabularies && choice.has("model"))
        parts.vocabulary = {models_.opened.vocabularies.get(),
                            models_.opened.draft_vocabulary == DraftVocabulary::retokenize
                                ? spec::OtherVocabulary::Use::retokenize
                                : spec::OtherVocabulary::Use::intersection,
                            models_.opened.target.config.max_positions};
    parts.device = device;
    if (choice.has("head")) parts.head = head();
    parts.tree = choice.tree;
    parts.rules.assign(rules.begin(), rules.end());
    parts.costs.assign(costs.begin(), costs.end());
    parts.corpus = corpus_;
    parts.table = table_ ? &*table_ : nullptr;
    return spec::make_drafter(choice.kinds, parts, parts.vocabulary ? std::nullopt : choice.ahead);
}

model::Decoder& Drafters::draft_model(std::size_t draft) const {
    return models_.loaded.sharded_draft ? *models_.loaded.sharded_draft : *models_.loaded.drafts.at(draft);
}

void require_wide_enough(const spec::Costs& costs, const std::string& file, int max_draft_tokens) {
    const int rows = max_draft_tokens + 1;
    if (costs.t_target.size() <= static_cast<std::size_t>(max_draft_tokens))
        throw BadOption(fmt::format("--costs {} times passes of up to {}, and --max-draft-tokens {} makes {}: measure "
                                    "with bench latency --rows {}",
                                    file, counted(static_cast<std::int64_t>(costs.t_target.size()), "row"),
                                    max_draft_tokens, rows, rows));
}

void say_if_disturbed(const spec::Costs& costs, const std::string& file) {
    if (!costs.disturbance.empty())
        log_line("warning: " + file + " was measured on a disturbed machine (" + costs.disturbance +
                 "): its times are not to be trusted");
}

std::vector<std::optional<spec::Costs>> read_costs_files(const SpeculationOptions& speculation) {
    std::vector<std::optional<spec::Costs>> levels;
    for (std::size_t level = 0; level < speculation.costs.size(); ++level) {
        std::optional<spec::Costs>& costs = levels.emplace_back();
        const std::string& file = speculation.costs[level];
        if (file.empty()) continue;
        costs = spec::read_costs(file);
        require_wide_enough(*costs, file, speculation.stop_rules.at(level).max_tokens);
        if (!speculation.drafter.runs_model()) *costs = {0, costs->t_target, std::nullopt, costs->t_round};
    }
    return levels;
}

void require_readable(const DrafterSources& sources) {
    const std::pair<const char*, const std::string&> files[] = {{"--lookup-corpus ", sources.lookup_corpus},
                                                                {"--draft-table ", sources.draft_table}};
    for (const auto& [option, file] : files)
        if (!file.empty() && file != "-" && access(file.c_str(), R_OK) != 0) // a pipe is opened once
            throw std::runtime_error(option + file + ": cannot be opened: " + std::strerror(errno));
}

} // namespace entrodraft::launch
