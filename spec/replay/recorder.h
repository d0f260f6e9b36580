// Makes the record of a decoded text. The target and each draft model read all of it. At each place where a draft
// model's token is wrong, the model goes on with a chain of its own. One pass drafts many such chains. A head drafts at
// every place.
//
// It decodes nothing: the text is given, and is compared with the tokens that the target emits, with its noise. Called
// by the command record, on all ranks.
#pragma once

#include "spec/draft/drafter.h"
#include "spec/draft/head_texts.h"
#include "spec/draft/model_drafter.h"
#include "spec/replay/recording.h"
#include "spec/round/engine.h"
#include "spec/round/target_rows.h"

#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace entrodraft::spec {

struct RecorderOptions {
    DraftLimits limits;
    int max_draft_tokens = StopRuleOptions::kDefaultMaxTokens;
    std::vector<TreeOptions> trees; // their rows are recorded too
    int draft_slots = 2;            // of each draft: one for the text, the others for chains
    double timeout_seconds = dist::kDefaultTimeoutSeconds;
};

// The ranks of a row's tokens, by the values with which its model chooses. For figures; drafting itself never needs
// more than the best token.
class Ranking {
  public:
    // Ranks the token at `position` by processed logits, or if `noisy` by logit / temperature + noise among the tokens
    // that the filters keep.
    Ranking(std::span<const float> logits, const Request& request, std::uint64_t position, bool noisy);

    // The first `n` tokens, the best first, ties by their ids; fewer if fewer can be emitted.
    std::vector<TokenId> first(std::size_t n) const;
    // Number of tokens before this one; -1 if it cannot be emitted.
    std::int32_t rank(TokenId token) const;

  private:
    std::vector<double> values_; // -inf: cannot be emitted
};

class Recorder {
  public:
    // All that these point to outlives it. Only the coordinator uses `drafts` and `head`; a `head` that is not null is
    // one more draft.
    Recorder(const RecorderOptions& options, const EngineParts& parts, std::span<model::Decoder* const> drafts,
             const HeadModules* head = nullptr);
    ~Recorder();

    // Fills in the columns of a text whose request, tokens (also those after a stop string) and new_tokens are set.
    // Only the coordinator's `record` and `request` are used. Throws std::runtime_error if the target emits other
    // tokens. Collective over the replica.
    void record(TextRecord* record, const Request* request);

  private:
    struct Reader;
    struct Chain;

    std::vector<TokenId> broadcast(const TextRecord* record, const Request* request, std::size_t& prompt_tokens);
    void read_prompt(std::span<const TokenId> tokens, std::size_t prompt_tokens);
    std::vector<TargetRows> score(std::span<const TokenId> tokens, std::size_t first_row, std::size_t n_rows);
    void note_target(TextRecord& record, const Request& request, const TargetRows& rows, std::size_t first,
                     std::size_t n);
    void note_draft(Reader& reader, DraftRecord& draft, const TextRecord& record, std::size_t first, std::size_t n);
    void note_places_of_head(Reader& reader, DraftRecord& draft, const TextRecord& record, std::size_t first,
                             std::size_t n);
    void note_place(Reader& reader, DraftRecord& draft, const TextRecord& record, std::size_t place,
                    std::span<const float> row, const model::LogitStats& summary);
    static std::pair<TokenId, DraftedToken> chosen_of(const Reader& reader, const SeenLogits& seen,
                                                      std::span<const float> row, std::size_t position);
    void note_no_row(Reader& reader, DraftRecord& draft) const;
    void keep_hidden(const model::PassResult& result, std::size_t n_rows);
    void hand_hidden(Reader& reader, std::size_t place);
    void enter(std::size_t place);
    bool goes_on(bool has_more);
    void enter_next(std::size_t place);
    Chain chain_of(const Reader& reader, const DraftRecord& draft, const TextRecord& record, std::size_t place) const;
    static void add(const Chain& chain, DraftRecord& draft);
    void follow_astray(Reader& reader, DraftRecord& draft, const TextRecord& record);
    void follow_rounds(Reader& reader, DraftRecord& draft, const TextRecord& record);
    void follow_together(Reader& reader, std::span<Chain> chains);

    RecorderOptions options_;
    EngineParts parts_;
    TargetGather gather_;
    std::vector<std::unique_ptr<Reader>> readers_; // of each draft, on the coordinator
    std::vector<float> hidden_; // [positions of the text][hidden_layers][hidden_size]: the states that the head reads
    TokenChooser chooser_;      // the target's
    const Request* request_ = nullptr;
    bool noisy_ = false; // gumbel; else greedy
    model::PassResult scores_;
    std::vector<TokenId> tokens_;              // prompt and places of the present text
    std::vector<TokenId> source_;              // of the present text
    std::vector<std::vector<float>> p_;        // of the present chunk: the target's raw log-probabilities, [places]
    std::vector<std::vector<float>> adjusted_; // its adjusted distributions, if sampled
};

} // namespace entrodraft::spec
