// Every drafter there is, over the models of a test, for what must hold whoever drafts: each alone, cascades of two and
// three levels over models, look-ups, tables and random numbers, and combinations. For tests only.
#pragma once

#include "tests/spec/engine_support.h"

#include "spec/draft/draft_model.h"
#include "spec/draft/ngram_index.h"
#include "spec/draft/suffix_index.h"
#include "spec/draft/token_table.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace entrodraft {

// What drafters draft with. All outlive them; decoders may be shared, since one drafter works at a time.
struct DrafterSources {
    spec::DraftLimits limits;
    const dist::Clock& clock;
    model::Decoder* draft = nullptr; // none: no drafter has a model
    model::Decoder* other = nullptr; // beside it: of another size
    const spec::TokenTable& table;
    std::shared_ptr<const spec::SuffixAutomaton> corpus;
};

// A table over the vocabulary, of texts one after another.
inline spec::TokenTable table_of(int vocab_size, std::span<const std::vector<TokenId>> texts) {
    spec::TokenCounter counter(vocab_size, 0);
    for (const std::vector<TokenId>& text : texts)
        counter.add(text);
    return spec::TokenTable(counter.take());
}

class EveryDrafter {
  public:
    explicit EveryDrafter(const DrafterSources& from) : from_(from) {}

    // Those for a rank without the target as well, for one sequence: "model ahead", also with a backup.
    std::vector<std::string> names(bool has_time_ahead = false) const {
        std::vector<std::string> all = names(from_.draft != nullptr, from_.other != nullptr);
        if (has_time_ahead) all.insert(all.end(), {"model ahead", "ngram,model ahead"});
        return all;
    }
    static std::vector<std::string> names(bool has_draft, bool has_other) {
        std::vector<std::string> all = {
            "ngram",         "suffix",       "suffix+corpus",         "bigram",      "unigram", "random",
            "bigram<random", "bigram<ngram", "bigram<unigram<random", "ngram,bigram"};
        if (has_draft)
            all.insert(all.end(), {"model", "model together", "model<bigram", "model<ngram", "model<bigram<random",
                                   "ngram,model", "suffix+corpus,model<bigram"});
        if (has_draft && has_other)
            all.insert(all.end(), {"other<model", "other<model<bigram", "model<other", "ngram,other<model<unigram"});
        return all;
    }

    // For `n_slots` sequences: "model together" in passes that these share, any other for each of them.
    std::unique_ptr<spec::BatchDrafter> make_batch(const std::string& name, const spec::StopRuleOptions& inner,
                                                   int n_slots) {
        if (name == "model together") {
            together_.emplace(*from_.draft);
            return spec::make_shared_passes_drafter(*together_, n_slots, from_.limits, from_.clock);
        }
        if (name.ends_with("model ahead")) { // the same hidden passes however long the target takes
            together_.emplace(*from_.draft);
            auto backup = name.starts_with("ngram,") ? make("ngram", inner) : nullptr;
            return spec::make_ahead_drafter(*together_, {.outcomes = 6, .passes = 4}, from_.limits, from_.clock,
                                            std::move(backup));
        }
        std::vector<std::unique_ptr<spec::Drafter>> drafters;
        for (int slot = 0; slot < n_slots; ++slot)
            drafters.push_back(make(name, inner, slot));
        return spec::make_turns_drafter(std::move(drafters));
    }

    // "a,b" the first of a and b that drafts; "a<b" a verifies what b drafts, under the rule `inner`; "model",
    // "bigram".
    std::unique_ptr<spec::Drafter> make(const std::string& name, const spec::StopRuleOptions& inner,
                                        int slot = 0) const {
        if (const std::size_t comma = name.find(','); comma != std::string::npos) {
            std::vector<std::unique_ptr<spec::Drafter>> drafters;
            drafters.push_back(make(name.substr(0, comma), inner, slot));
            drafters.push_back(make(name.substr(comma + 1), inner, slot));
            return spec::make_fallback_drafter(std::move(drafters));
        }
        if (const std::size_t below = name.find('<'); below != std::string::npos)
            return spec::make_cascade_drafter(
                {source(name.substr(0, below), slot), make(name.substr(below + 1), inner, slot), inner, {}},
                from_.limits, from_.clock);
        if (std::unique_ptr<spec::LookupIndex> index = index_of(name))
            return spec::make_lookup_drafter(name, std::move(index), from_.limits, from_.clock);
        return spec::make_chain_drafter(source(name, slot), from_.limits, from_.clock);
    }

  private:
    std::unique_ptr<spec::LookupIndex> index_of(const std::string& name) const {
        if (name == "ngram") return std::make_unique<spec::NgramIndex>(spec::NgramOptions{});
        if (name == "suffix") return std::make_unique<spec::SuffixIndex>(spec::SuffixOptions{});
        if (name == "suffix+corpus") return std::make_unique<spec::SuffixIndex>(spec::SuffixOptions{}, from_.corpus);
        return nullptr;
    }

    std::unique_ptr<spec::LogitSource> source(const std::string& name, int slot) const {
        const int vocab = from_.limits.vocab_size;
        if (name == "model") return spec::make_model_source(*from_.draft, vocab, slot);
        if (name == "other") return spec::make_model_source(*from_.other, vocab, slot);
        if (name == "bigram") return spec::make_table_source(from_.table, 2, vocab);
        if (name == "unigram") return spec::make_table_source(from_.table, 1, vocab);
        if (name == "random") return spec::make_random_source(vocab);
        throw std::invalid_argument("no source " + name);
    }

    DrafterSources from_;
    std::optional<spec::LocalDraftModel> together_;
};

} // namespace entrodraft
