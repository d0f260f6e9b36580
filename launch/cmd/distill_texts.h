// Texts that distill learns from: made by an engine, read again by the target. Collective over the world.
#pragma once

#include "launch/cmd/distill_files.h"
#include "launch/io/json_line.h"
#include "launch/load/drafters.h"
#include "spec/distill/scored_texts.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

class ContinuedTexts;

// What the pair's target writes behind the prompts, batch by batch, drafted by the pair's draft where there is one.
// Requests count on the coordinator, where the texts are, in their order; of a text that failed no tokens. Texts that
// `continued` has found are not made anew, and it gets the others; null: it keeps none. Throws OrderlyFailure
// (kStopped) where a signal came first.
std::vector<std::vector<spec::TokenId>> continue_all(dist::Session& session, ModelPair& models,
                                                     const std::vector<spec::Request>& requests, bool quiet,
                                                     ContinuedTexts* continued = nullptr);

// A continued prompt as a text to learn; nothing where there is nothing to learn.
void add_text(const spec::Request& request, const std::vector<spec::TokenId>& continued,
              std::vector<spec::ScoredText>& texts);

// Before anything is written: throws std::runtime_error where the file that texts are to come from cannot be opened.
void require_source_of_texts(const DistillOptions& options);

// What a run learns from, on all ranks: texts of an earlier run, or those that its target makes.
class DistillTexts {
  public:
    // For drafts that know the first `vocab_size` tokens. All outlive this.
    DistillTexts(dist::Session& session, const DistillOptions& options, const DistillFiles& files, int vocab_size);

    // Throws OrderlyFailure.
    void find();

    const std::vector<spec::ScoredText>& learned() const { return texts_.learned; }
    const std::vector<spec::ScoredText>& held_out() const { return texts_.held_out; }
    const Json& description() const { return description_; }         // how they were made
    int vocab_size() const { return description_.at("vocab_size"); } // tokens that count
    int max_new_tokens() const { return description_.at("max_new_tokens"); }

    // Fills in, on all ranks, what the pair's target has at the places of texts, which the first rank has.
    void score(ModelPair& models, std::vector<spec::ScoredText>& texts) const;
    // Those of a file that this program wrote, on all ranks.
    spec::ScoredTexts read(const std::string& file) const;

  private:
    bool writes() const { return session_.world_rank() == 0; }
    std::string file() const;
    void make();
    Json made_by(int vocab_size) const;
    void require_both(const std::string& file) const;
    void require_same_target() const;
    void share_description();

    dist::Session& session_;
    const DistillOptions& options_;
    const DistillFiles& files_;
    int draft_vocab_size_;
    spec::ScoredTexts texts_;
    Json description_;
};

} // namespace entrodraft::launch
