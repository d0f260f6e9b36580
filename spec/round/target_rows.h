// The target's rows on their way to the coordinator: what a rank sends of its slice of the vocabulary, the one gather
// of a round, and what the coordinator reads in what all ranks sent.
//
// The format of a row is fixed by the options of run and request, never by values, so that every rank sends the same
// number of bytes. Penalties and banned tokens are applied before, by each rank to its slice, each row with its own
// prefix; where there are log-probabilities or a constraint, behind, by the coordinator. Verifies nothing (verifier.h
// does). Called by the round.
#pragma once

#include "dist/comm/communicator.h"
#include "model/pass/decoder.h"
#include "spec/beams/beam_search.h"
#include "spec/beams/beam_tree.h"
#include "spec/protocol/request.h"
#include "spec/verify/device_verifier.h"
#include "spec/verify/random.h"
#include "spec/verify/token_tree.h"
#include "spec/verify/verify.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace entrodraft::spec {

enum class RowFormat {
    arg_max,            // of the rank's slice
    gumbel_max,         // the same with Gumbel noise on the logits
    shortlist,          // what top-k and min-p leave of the slice under Gumbel noise (random.h)
    logits,             // all of the slice
    verified_on_device, // what tp rank 0's GPU made of the row beside the draft's
    beams,              // what a beam search looks at (beams/beam_rows.h)
};

struct VerifyOptions {
    AcceptanceOptions acceptance;
    int vocab_size = 0;      // tokens that both models and the tokenizer know
    bool whole_rows = false; // logits are wanted however they are verified
};

// Of a sequence that is neither verified on the device nor a beam search.
RowFormat row_format(const VerifyOptions& options, const SamplingOptions& sampling);

// What all sequences of a replica have in common.
struct GatherSetting {
    VerifyOptions options;
    const model::ModelConfig* config = nullptr; // the target's
    const model::Decoder* target = nullptr;     // this rank's shard; null where it holds none
    int tp_size = 1;
    int first_target_rank = 0;        // of the replica: a dedicated drafter comes before them
    DeviceVerifier* device = nullptr; // of this rank's GPU

    std::size_t max_slice() const; // most tokens of the vocabulary on a rank
};

// A sequence's rows of a target pass: one after `tokens`, then one after each drafted token. Of a beam search `tokens`
// are the prompt, and the rows those that its tree has added.
struct ScoredSequence {
    int slot = 0;
    std::size_t first_row = 0;       // of the pass
    std::span<const TokenId> tokens; // prompt and accepted text
    std::span<const TokenId> drafted;
    Parents parents; // of the drafted tokens
    const BeamTree* beams = nullptr;

    std::size_t n_rows() const { return beams ? drafted.size() : drafted.size() + 1; }
    // Of the token that a row decides, in the sequence.
    std::uint64_t position(std::size_t row) const {
        if (beams) return 0; // nobody draws in a beam search
        return tokens.size() + static_cast<std::size_t>(depth_of(parents, static_cast<int>(row) - 1));
    }
};

// Rows of logits.
struct LogitRows {
    std::span<const float> logits;
    std::size_t stride = 0;
    std::size_t size = 0; // of a row
    std::span<const float> row(std::size_t i) const {
        return logits.empty() ? logits : logits.subspan(i * stride, size);
    }
};

class RowEncoder;

// One sequence's rows, whole, on the coordinator. Valid until the next gather.
class TargetRows {
  public:
    RowFormat format() const;
    // Arg max or Gumbel-max sample of a row; its runner_up is NaN behind a shortlist. Throws
    // NothingToSay where no token is left, std::runtime_error where a logit is not a number.
    BestToken best(std::size_t row) const;
    // What the target itself has behind a row: its arg max, or the sample that `gumbel` goes by; none where every token
    // is banned. Not of beams nor of rows verified on the device. Throws std::runtime_error as best() does.
    std::optional<TokenId> own_token(std::size_t row) const;
    // Of a beam search: the first tokens that may follow a row, as many as BeamSearch wants of it, and their processed
    // logarithmic probabilities. Throws as best() does.
    std::vector<BeamCandidate> candidates(std::size_t row) const;
    // Of format verified_on_device.
    VerifiedRow verified(std::size_t row) const;
    // [vocab_size], of format logits.
    std::span<const float> logits(std::size_t row) const;
    // Of a request that asks for them: what the row has of the token that it emits, and of the first `n`, over the
    // target's whole vocabulary. Throws std::runtime_error where a logit is not a number.
    TokenLogProbs logprobs(std::size_t row, TokenId emitted, int n) const;

  private:
    friend class RowEncoder;
    std::span<const std::byte> part(int tp_rank, std::size_t row) const;
    BestToken best_of_slices(std::size_t row) const;
    BestToken best_of_whole(std::size_t row) const;

    RowEncoder* encoder_ = nullptr;
    ScoredSequence sequence_;
    std::span<const std::byte> parts_; // of replica rank r: from r * part_stride_ on
    std::size_t part_stride_ = 0;
    LogitRows raw_;  // of format logits
    LogitRows rows_; // the same, processed
};

// How one sequence's rows travel, the same on every rank.
class RowEncoder {
  public:
    // `setting` outlives it.
    RowEncoder(const GatherSetting& setting, const Request& request, bool verified_on_device = false);

    RowFormat format() const { return format_; }
    std::size_t row_bytes() const;
    // What to ask of the target's pass.
    model::LogitNeeds needs() const;
    // The noise that the pass may add to the row after `position` tokens; of temperature 0 where it adds none.
    model::RowNoise noise(std::uint64_t position) const;
    // What the pass is to verify of row i; of temperature 0 where it verifies none.
    DraftedRow drafted_row(const ScoredSequence& sequence, std::size_t i) const;

    // This rank's part, [n_rows][row_bytes()]; zeros without a shard.
    void encode(const ScoredSequence& sequence, const model::PassResult& scores, std::span<std::byte> to);
    // Of what all ranks sent of n rows: rank r's part begins at parts + r * stride.
    TargetRows decode(std::span<const std::byte> parts, std::size_t stride, const ScoredSequence& sequence);
    // The same on a rank alone with format logits: nothing is copied where nothing is done to them.
    TargetRows rows_of(const ScoredSequence& sequence, const model::PassResult& scores);

  private:
    friend class TargetRows;
    friend class TargetGather;
    std::size_t n_known() const;
    // Of this rank's vocabulary: as the pass has them, empty where its own summaries serve; and as they are sent.
    LogitRows raw(const ScoredSequence& sequence, const model::PassResult& scores) const;
    LogitRows sent(const ScoredSequence& sequence, const model::PassResult& scores);
    LogitRows processed(const LogitRows& raw, const ScoredSequence& sequence, TokenId first_token);
    TargetRows whole_rows(const LogitRows& sent, const ScoredSequence& sequence);
    bool selects_on_device() const;
    std::size_t n_candidates() const;
    void encode_beams(const ScoredSequence& sequence, const model::PassResult& scores, std::span<std::byte> to);
    // As the row's own prefix asks.
    void process_beam_row(const ScoredSequence& sequence, std::size_t row, std::span<float> values, TokenId first);
    BestToken best_of_slice(std::span<const float> logits, const ScoredSequence& sequence,
                            const model::PassResult& scores, std::size_t row) const;

    const GatherSetting* setting_;
    SamplingOptions sampling_;
    int num_beams_ = 0;
    bool sends_raw_; // rows travel whole and as they are; the coordinator processes them
    GumbelNoise noise_;
    RandomStream resample_; // of format verified_on_device
    std::optional<LogitProcessor> processor_;
    RowFormat format_;
    std::vector<float> processed_; // [rows][slice]
    std::vector<float> whole_;     // [rows][vocab of the target]
};

// The gather of all sequences of a round, a status word of each rank with it.
class TargetGather {
  public:
    // `n_slots` sequences at once; `replica` outlives it.
    TargetGather(const GatherSetting& setting, dist::Communicator& replica, int n_slots);
    TargetGather(const TargetGather&) = delete; // encoders know where its setting is

    // Tokens that count in the summaries of a pass; 0: all, to a beam search.
    int summary_vocab(std::span<const ScoredSequence> sequences) const;

    // Of what is sent of the slot from now on. Whether it is verified on the device, the coordinator has broadcast.
    void begin_sequence(int slot, const Request& request, bool verified_on_device = false);
    const RowEncoder& encoder(int slot) const { return *encoders_[static_cast<std::size_t>(slot)]; }
    // What to ask of a pass over the rows of these. Valid until the next call.
    model::LogitNeeds needs(std::span<const ScoredSequence> sequences);

    // Sends this rank's part of `sequences` (none between rounds); these and `scores` stay until finish(). Collective
    // over the replica.
    void start(std::uint64_t status, std::span<const ScoredSequence> sequences, const model::PassResult& scores);
    // Whether finish() would not wait, as far as is known.
    bool has_arrived() const { return replica_.is_ready(); }
    // The rows of each sequence, on the coordinator; elsewhere none. Local wait on a collective.
    std::vector<TargetRows> finish(dist::Deadline deadline);

    // Gives a coordinator without a shard what the first rank with one has of scores.hidden, [n][hidden_size]; it stays
    // until the next call. Collective over the replica, but where every rank holds a shard: then nothing is done.
    void share_hidden(model::PassResult& scores, std::size_t n, dist::Deadline deadline);

    // Whether a rank sent this status word. Coordinator only.
    bool any_status(std::uint64_t status) const;

  private:
    bool is_coordinator() const;
    bool is_sent(const ScoredSequence& sequence) const;
    RowEncoder& encoder_of(const ScoredSequence& sequence) {
        return *encoders_[static_cast<std::size_t>(sequence.slot)];
    }

    const GatherSetting setting_;
    dist::Communicator& replica_;
    std::vector<std::optional<RowEncoder>> encoders_; // [slot]
    std::span<const ScoredSequence> sequences_;       // under way
    const model::PassResult* scores_ = nullptr;
    std::vector<model::RowNoise> noises_; // of a pass's rows
    std::vector<DraftedRow> drafted_rows_;
    std::vector<std::byte> sent_;     // status word, then each sequence's rows
    std::vector<std::byte> gathered_; // the same of every rank
    std::vector<float> hidden_;       // of share_hidden()
};

} // namespace entrodraft::spec
