// Every drafter, over the models of a test, for properties that must hold whoever drafts: each alone, cascades of two
// and three levels over models, look-ups, tables and random numbers, and combinations. For tests only.
#pragma once

#include "tests/spec/engine_support.h"

#include "spec/draft/lookup_corpus.h"
#include "spec/draft/model_drafter.h"
#include "spec/draft/token_table.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace entrodraft {

// The parts that drafters use. All outlive them; decoders may be shared, since one drafter works at a time.
struct DrafterSources {
    spec::DraftLimits limits;
    const dist::Clock& clock;
    model::Decoder* draft = nullptr; // none: no drafter has a model
    model::Decoder* other = nullptr; // a second model of another size
    const spec::TokenTable& table;
    std::shared_ptr<const spec::LookupCorpus> corpus;
};

// A table over the vocabulary, of some texts.
inline spec::TokenTable table_of(int vocab_size, std::span<const std::vector<TokenId>> texts) {
    spec::TokenCounter counter(vocab_size, 0);
    for (const std::vector<TokenId>& text : texts)
        counter.add(text);
    return spec::TokenTable(counter.take());
}

class EveryDrafter {
  public:
    explicit EveryDrafter(const DrafterSources& from) : from_(from) {}

    // Also the drafters for a rank without the target and one sequence: "model ahead", alone and with a backup.
    std::vector<std::string> names(bool has_time_ahead = false) const {
        std::vector<std::string> all = names(from_.draft != nullptr, from_.other != nullptr);
        if (has_time_ahead) all.insert(all.end(), {"model ahead", "ngram,model ahead"});
        return all;
    }
    static std::vector<std::string> names(bool has_draft, bool has_other) {
        std::vector<std::string> all = spec::drafter_names();
        std::erase(all, "head"); // needs a target that has a head: heads_mpi.cpp
        if (!has_draft) std::erase(all, "model");
        all.insert(all.end(), {"suffix+corpus", "suffix+run", "ngram+run", "bigram<random", "bigram<ngram",
                               "bigram<unigram<random", "ngram,bigram", "ngram,lookahead"});
        if (has_draft) all.insert(all.end(), {"model tree 3,2,1", "model tree eagle2:4:4", "model tree expected-gain"});
        if (has_draft)
            all.insert(all.end(), {"model<bigram", "model<ngram", "model<bigram<random", "ngram,model",
                                   "suffix+corpus,model<bigram"});
        if (has_draft && has_other)
            all.insert(all.end(), {"other<model", "other<model<bigram", "model<other", "ngram,other<model<unigram"});
        return all;
    }

    // Names: "model", "bigram"; "model tree SHAPE" drafts a tree; "a,b" is the first of a and b that drafts; in "a<b" a
    // verifies the drafts of b, under the rule `inner`.
    std::unique_ptr<spec::Drafter> make(const std::string& name, const spec::StopRuleOptions& inner, int n_slots = 1) {
        if (name.ends_with("model ahead")) // the number of hidden passes is fixed, however long the target takes
            return spec::make_ahead_drafter(*from_.draft, {.outcomes = 6, .passes = 4}, {from_.limits, from_.clock},
                                            name.starts_with("ngram,") ? make("ngram", inner) : nullptr);
        constexpr std::string_view kTree = "model tree ";
        if (name.starts_with(kTree)) {
            spec::DrafterParts parts{{from_.limits, from_.clock, n_slots}};
            parts.models = {from_.draft};
            parts.tree = spec::parse_tree(name.substr(kTree.size()));
            return spec::drafter_type("model").make(parts);
        }
        if (const std::size_t comma = name.find(','); comma != std::string::npos) {
            std::vector<std::unique_ptr<spec::Drafter>> drafters;
            drafters.push_back(make(name.substr(0, comma), inner, n_slots));
            drafters.push_back(make(name.substr(comma + 1), inner, n_slots));
            return spec::make_fallback_drafter(std::move(drafters));
        }
        if (const std::size_t below = name.find('<'); below != std::string::npos)
            return spec::make_cascade_drafter(
                {source(name.substr(0, below), n_slots), make(name.substr(below + 1), inner, n_slots), inner, {}},
                {from_.limits, from_.clock, n_slots});
        spec::DrafterParts parts{{from_.limits, from_.clock, n_slots}};
        if (from_.draft) parts.models = {name == "other" ? from_.other : from_.draft};
        if (name == "suffix+corpus") parts.corpus = from_.corpus;
        parts.table = &from_.table;
        spec::DrafterValues values;
        if (name.ends_with("+run")) values = {{"texts", static_cast<int>(spec::LookupTexts::run)}};
        return spec::drafter_type(name == "other" ? "model" : name.substr(0, name.find('+'))).make(parts, values);
    }

  private:
    std::unique_ptr<spec::LogitSource> source(const std::string& name, int n_slots) const {
        const int vocab = from_.limits.vocab_size;
        if (name == "model") return spec::make_model_source(*from_.draft, vocab, n_slots);
        if (name == "other") return spec::make_model_source(*from_.other, vocab, n_slots);
        if (name == "bigram") return spec::make_table_source(from_.table, 2, vocab);
        if (name == "unigram") return spec::make_table_source(from_.table, 1, vocab);
        throw std::invalid_argument("no source " + name);
    }

    DrafterSources from_;
};

} // namespace entrodraft
