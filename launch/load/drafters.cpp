// From options to drafters: see drafters.h.
#include "launch/load/drafters.h"

#include "launch/counted.h"
#include "launch/failure.h"
#include "launch/io/report.h"
#include "launch/load/text_tokens.h"
#include "launch/phase.h"
#include "spec/draft/suffix_index.h"

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <unistd.h>
#include <utility>

namespace entrodraft::launch {

Drafters::Drafters(dist::Session& session, ModelPair& models, const DrafterSources& sources, double timeout_seconds)
    : models_(models), sources_(sources) {
    for (const auto& draft : models_.drafts)
        draft_models_.push_back(std::make_unique<spec::LocalDraftModel>(*draft));
    in_agreement(session, timeout_seconds, [&] {
        if (!models_.layout.is_coordinator()) return;
        if (!sources.draft_table.empty())
            table_.emplace(spec::TokenTable::open(sources.draft_table, models_.tokenizer->size(),
                                                  models_.tokenizer->fingerprint()));
        if (!sources.lookup_corpus.empty())
            corpus_ = spec::index_corpus(tokenize_file(sources.lookup_corpus, *models_.tokenizer));
    });
}

std::unique_ptr<spec::BatchDrafter> Drafters::make(const DrafterChoice& choice,
                                                   std::span<const spec::StopRuleOptions> rules,
                                                   std::span<const std::optional<spec::Costs>> costs) const {
    if (choice.kinds.empty() || !models_.layout.is_coordinator()) return nullptr;
    if (choice.ahead) {
        DrafterChoice before = {choice.kinds, {}, {}}; // the model, which comes last
        before.kinds.pop_back();
        return spec::make_ahead_drafter(draft_model(choice.drafts.front()), *choice.ahead, models_.draft_limits(),
                                        models_.clock,
                                        before.kinds.empty() ? nullptr : make_alone(0, before, rules, costs));
    }
    if (choice.kinds == std::vector{DrafterKind::model} && choice.drafts.size() == 1)
        return spec::make_shared_passes_drafter(draft_model(choice.drafts.front()), models_.batch_size,
                                                models_.draft_limits(), models_.clock);
    std::vector<std::unique_ptr<spec::Drafter>> slots;
    for (int slot = 0; slot < models_.batch_size; ++slot)
        slots.push_back(make_alone(slot, choice, rules, costs));
    return spec::make_turns_drafter(std::move(slots));
}

spec::DraftModel& Drafters::draft_model(std::size_t draft) const {
    return models_.sharded_draft ? *models_.sharded_draft : *draft_models_.at(draft);
}

std::unique_ptr<spec::Drafter> Drafters::make_alone(int slot, const DrafterChoice& choice,
                                                    std::span<const spec::StopRuleOptions> rules,
                                                    std::span<const std::optional<spec::Costs>> costs) const {
    std::vector<std::unique_ptr<spec::Drafter>> drafters;
    for (const DrafterKind kind : choice.kinds)
        drafters.push_back(make_one(slot, kind, choice, rules, costs));
    return drafters.size() == 1 ? std::move(drafters.front()) : spec::make_fallback_drafter(std::move(drafters));
}

std::unique_ptr<spec::Drafter> Drafters::make_one(int slot, DrafterKind kind, const DrafterChoice& choice,
                                                  std::span<const spec::StopRuleOptions> rules,
                                                  std::span<const std::optional<spec::Costs>> costs) const {
    const spec::DraftLimits limits = models_.draft_limits();
    const auto chain = [&](std::unique_ptr<spec::LogitSource> source) {
        return spec::make_chain_drafter(std::move(source), limits, models_.clock);
    };
    switch (kind) {
    case DrafterKind::model:
        return make_cascade(slot, choice.drafts, rules, costs);
    case DrafterKind::ngram:
        return spec::make_lookup_drafter("ngram", std::make_unique<spec::NgramIndex>(sources_.ngram), limits,
                                         models_.clock);
    case DrafterKind::suffix:
        return spec::make_lookup_drafter(
            "suffix", std::make_unique<spec::SuffixIndex>(spec::SuffixOptions{sources_.ngram.shortest}, corpus_),
            limits, models_.clock);
    case DrafterKind::bigram:
        return chain(spec::make_table_source(*table_, 2, limits.vocab_size));
    case DrafterKind::unigram:
        return chain(spec::make_table_source(*table_, 1, limits.vocab_size));
    case DrafterKind::random:
        return chain(spec::make_random_source(limits.vocab_size));
    }
    throw std::invalid_argument("make_drafter: no such drafter");
}

// The smallest model drafts for the one above it, and so on up to the first, which drafts for the target.
std::unique_ptr<spec::Drafter> Drafters::make_cascade(int slot, const std::vector<std::size_t>& drafts,
                                                      std::span<const spec::StopRuleOptions> rules,
                                                      std::span<const std::optional<spec::Costs>> costs) const {
    const spec::DraftLimits limits = models_.draft_limits();
    const auto source = [&](std::size_t level) {
        return spec::make_model_source(*models_.drafts.at(drafts[level]), limits.vocab_size, slot);
    };
    std::size_t level = drafts.size() - 1;
    std::unique_ptr<spec::Drafter> drafter = spec::make_chain_drafter(source(level), limits, models_.clock);
    for (; level > 0; --level)
        drafter = spec::make_cascade_drafter({source(level - 1), std::move(drafter), rules[level], costs[level]},
                                             limits, models_.clock);
    return drafter;
}

void require_wide_enough(const spec::Costs& costs, const std::string& file, int max_draft_tokens) {
    const std::string rows = std::to_string(max_draft_tokens + 1);
    if (costs.t_target.size() <= static_cast<std::size_t>(max_draft_tokens))
        throw BadOption("--costs " + file + " times passes of up to " +
                        counted(static_cast<std::int64_t>(costs.t_target.size()), "row") + ", and --max-draft-tokens " +
                        std::to_string(max_draft_tokens) + " makes " + rows + ": measure with bench latency --rows " +
                        rows);
}

void say_if_disturbed(const spec::Costs& costs, const std::string& file) {
    if (!costs.disturbance.empty())
        say("warning: " + file + " was measured on a disturbed machine (" + costs.disturbance +
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
        if (!speculation.drafter.has(DrafterKind::model)) *costs = {0, costs->t_target, std::nullopt, costs->t_round};
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
