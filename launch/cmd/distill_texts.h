// Texts that distill learns from. An engine makes them, and the target reads them again. Collective over the world.
#pragma once

#include "launch/cmd/distill_files.h"
#include "launch/io/json_line.h"
#include "launch/load/drafters.h"
#include "spec/distill/scored_texts.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

class ContinuedTexts;

// The pair's target continues the prompts, batch by batch; the pair's draft drafts, if there is one. Requests count on
// the coordinator, which gets the texts in their order; a text that failed has no tokens. Texts that `continued` has
// found are not made again; it stores the others. Null: nothing is stored. Throws OrderlyFailure (kStopped) if a signal
// came first.
std::vector<std::vector<spec::TokenId>> continue_all(dist::Session& session, ModelPair& models,
                                                     const std::vector<spec::Request>& requests, bool quiet,
                                                     ContinuedTexts* continued = nullptr);

// Adds a continued prompt to `texts`; does nothing if there is nothing to learn.
void add_text(const spec::Request& request, const std::vector<spec::TokenId>& continued,
              std::vector<spec::ScoredText>& texts);

// Runs before anything is written. Throws std::runtime_error if the source file of the texts cannot be opened.
void require_source_of_texts(const DistillOptions& options);

// Texts that a run learns from, on all ranks: those of an earlier run, or texts that its target makes.
class DistillTexts {
  public:
    // For drafts that know the first `vocab_size` tokens. All arguments outlive this object.
    DistillTexts(dist::Session& session, const DistillOptions& options, const DistillFiles& files, int vocab_size);

    // Throws OrderlyFailure.
    void find();

    const std::vector<spec::ScoredText>& learned() const { return texts_.learned; }
    const std::vector<spec::ScoredText>& held_out() const { return texts_.held_out; }
    const Json& description() const { return description_; }         // how the texts were made
    int vocab_size() const { return description_.at("vocab_size"); } // number of tokens that count
    int max_new_tokens() const { return description_.at("max_new_tokens"); }

    // Fills in the target's distributions at the places of texts, on all ranks. The first rank has the texts.
    void score(ModelPair& models, std::vector<spec::ScoredText>& texts) const;
    // Reads the texts of a file that this program wrote, on all ranks.
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
