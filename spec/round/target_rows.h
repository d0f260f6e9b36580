// Brings the target's rows to the coordinator. Each rank encodes its slice of the vocabulary, one gather of a round
// sends the slices, and the coordinator decodes the parts of all ranks.
//
// Only the options of run and request decide the format of a row. Values never do, so every rank sends the same number
// of bytes. Before the gather, each rank applies penalties and bans to its slice; each row has its own prefix. With
// log-probabilities or a constraint, the coordinator applies them after the gather. verifier.h verifies the rows.
// Called by the round.
#pragma once

#include "dist/comm/communicator.h"
#include "model/pass/decoder.h"
#include "spec/beams/beam_search.h"
#include "spec/beams/beam_tree.h"
#include "spec/gpu/device_round.h"
#include "spec/protocol/request.h"
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
    shortlist,          // the slice's best tokens after top-k and min-p, with Gumbel noise (random.h)
    logits,             // all of the slice
    verified_on_device, // figures of the target's and the draft's row, from tp rank 0's GPU
    beams,              // figures for a beam search (beams/beam_rows.h)
};

struct VerifyOptions {
    AcceptanceOptions acceptance;
    int vocab_size = 0;      // tokens that both models and the tokenizer know
    bool whole_rows = false; // logits are wanted, whatever the verification needs
};

// The format for a sequence that is neither verified on the device nor a beam search.
RowFormat row_format(const VerifyOptions& options, const SamplingOptions& sampling);

// Settings that all sequences of a replica share.
struct GatherSetting {
    VerifyOptions options;
    const model::ModelConfig* config = nullptr; // the target's
    const model::Decoder* target = nullptr;     // this rank's shard; null if it holds none
    int tp_size = 1;
    int first_target_rank = 0;     // rank in the replica; a dedicated drafter comes before it
    DeviceRound* device = nullptr; // of this rank's GPU

    std::size_t max_slice() const; // most tokens of the vocabulary on a rank
};

// A sequence's rows of a target pass: one after `tokens`, then one after each drafted token. In a beam search `tokens`
// are the prompt, and the rows are the ones that its tree has added.
struct ScoredSequence {
    int slot = 0;
    std::size_t first_row = 0;       // in the pass
    std::span<const TokenId> tokens; // prompt and accepted text
    std::span<const TokenId> drafted;
    Parents parents; // of the drafted tokens
    const BeamTree* beams = nullptr;

    std::size_t n_rows() const { return beams ? drafted.size() : drafted.size() + 1; }
    // The position in the sequence of the token that a row decides.
    std::uint64_t position(std::size_t row) const {
        if (beams) return 0; // a beam search draws no random numbers
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
    // Arg max or Gumbel-max sample of a row; from a shortlist its runner_up is NaN. Throws NothingToSay if no token is
    // left, and std::runtime_error if a logit is NaN or the largest is infinite.
    BestToken best(std::size_t row) const;
    // The target's own token after a row: its arg max, or the sample that `gumbel` uses; none if every token is banned.
    // Not for beams or rows verified on the device. Throws std::runtime_error as best() does.
    std::optional<TokenId> own_token(std::size_t row) const;
    // For a beam search: the best tokens after a row, as many as BeamSearch wants, and their processed
    // log-probabilities. Throws as best() does.
    std::vector<BeamCandidate> candidates(std::size_t row) const;
    // For format verified_on_device.
    VerifiedRow verified(std::size_t row) const;
    // [vocab_size], for format logits.
    std::span<const float> logits(std::size_t row) const;
    // For a request that asks for them: the log-probabilities of the emitted token and of the row's best `n`, over the
    // target's whole vocabulary. Throws std::runtime_error if a logit is NaN.
    TokenLogProbs logprobs(std::size_t row, TokenId emitted, int n) const;

  private:
    friend class RowEncoder;
    std::span<const std::byte> part(int tp_rank, std::size_t row) const;
    BestToken best_of_slices(std::size_t row) const;
    BestToken best_of_whole(std::size_t row) const;

    RowEncoder* encoder_ = nullptr;
    ScoredSequence sequence_;
    std::span<const std::byte> parts_; // replica rank r's part begins at r * part_stride_
    std::size_t part_stride_ = 0;
    LogitRows raw_;  // for format logits
    LogitRows rows_; // the same, processed
};

// The encoding of one sequence's rows, the same on every rank.
class RowEncoder {
  public:
    // `setting` outlives it.
    RowEncoder(const GatherSetting& setting, const Request& request, bool verified_on_device = false);

    RowFormat format() const { return format_; }
    std::size_t row_bytes() const;
    // The logits and summaries that the target's pass must give.
    model::LogitNeeds needs() const;
    // The noise that the pass adds to the row after `position` tokens; its temperature is 0 if it adds none.
    model::RowNoise noise(std::uint64_t position) const;
    // Row i, if the pass verifies it; its noise has temperature 0 if not.
    DraftedRow drafted_row(const ScoredSequence& sequence, std::size_t i) const;

    // Writes this rank's part, [n_rows][row_bytes()]; zeros without a shard.
    void encode(const ScoredSequence& sequence, const model::PassResult& scores, std::span<std::byte> to);
    // Decodes the rows from the parts of all ranks. Rank r's part begins at parts + r * stride.
    TargetRows decode(std::span<const std::byte> parts, std::size_t stride, const ScoredSequence& sequence);
    // The same for a replica of one rank with format logits. It copies logits only if they are processed.
    TargetRows rows_of(const ScoredSequence& sequence, const model::PassResult& scores);

  private:
    friend class TargetRows;
    friend class TargetGather;
    std::size_t n_known() const;
    // Rows of this rank's slice. raw(): as the pass has them, empty if its summaries serve. sent(): as they are sent.
    LogitRows raw(const ScoredSequence& sequence, const model::PassResult& scores) const;
    LogitRows sent(const ScoredSequence& sequence, const model::PassResult& scores);
    LogitRows processed(const LogitRows& raw, const ScoredSequence& sequence, TokenId first_token);
    TargetRows whole_rows(const LogitRows& sent, const ScoredSequence& sequence);
    bool selects_on_device() const;
    std::size_t n_candidates() const;
    void encode_beams(const ScoredSequence& sequence, const model::PassResult& scores, std::span<std::byte> to);
    // Processes `values` with the row's own prefix.
    void process_beam_row(const ScoredSequence& sequence, std::size_t row, std::span<float> values, TokenId first);
    BestToken best_of_slice(std::span<const float> logits, const ScoredSequence& sequence,
                            const model::PassResult& scores, std::size_t row) const;

    const GatherSetting* setting_;
    SamplingOptions sampling_;
    int num_beams_ = 0;
    bool sends_raw_; // whole rows are sent unprocessed; the coordinator processes them
    GumbelNoise noise_;
    RandomStream resample_; // for format verified_on_device
    std::optional<LogitProcessor> processor_;
    RowFormat format_;
    std::vector<float> processed_; // [rows][slice]
    std::vector<float> whole_;     // [rows][vocab of the target]
};

// The gather of all sequences of a round, with a status word of each rank.
class TargetGather {
  public:
    // For `n_slots` sequences at once; `replica` outlives it.
    TargetGather(const GatherSetting& setting, dist::Communicator& replica, int n_slots);
    TargetGather(const TargetGather&) = delete; // encoders point to its setting

    // Number of tokens that count in the summaries of a pass; 0, for beam searches: all.
    int summary_vocab(std::span<const ScoredSequence> sequences) const;

    // Sets the encoding of the slot from now on. `verified_on_device` is as the coordinator has broadcast it.
    void begin_sequence(int slot, const Request& request, bool verified_on_device = false);
    const RowEncoder& encoder(int slot) const { return *encoders_[slot]; }
    // The logits and summaries that a pass over these sequences' rows must give. Valid until the next call.
    model::LogitNeeds needs(std::span<const ScoredSequence> sequences);

    // Sends this rank's part of `sequences` (empty between rounds). `sequences` and `scores` must stay until finish().
    // Collective over the replica.
    void start(std::uint64_t status, std::span<const ScoredSequence> sequences, const model::PassResult& scores);
    // True if finish() would not wait, as far as is known.
    bool has_arrived() const { return replica_.is_ready(); }
    // Waits for start()'s collective. Returns the rows of each sequence on the coordinator, nothing elsewhere.
    std::vector<TargetRows> finish(dist::Deadline deadline);

    // Gives a coordinator without a shard the scores.hidden of the first rank with one, [n][hidden_size]. They stay
    // until the next call. Collective over the replica. Does nothing if every rank holds a shard.
    void share_hidden(model::PassResult& scores, std::size_t n, dist::Deadline deadline);

    // Returns whether a rank sent this status word. Coordinator only.
    bool any_status(std::uint64_t status) const;

  private:
    bool is_coordinator() const;
    bool is_sent(const ScoredSequence& sequence) const;
    RowEncoder& encoder_of(const ScoredSequence& sequence) { return *encoders_[sequence.slot]; }

    const GatherSetting setting_;
    dist::Communicator& replica_;
    std::vector<std::optional<RowEncoder>> encoders_; // [slot]
    std::span<const ScoredSequence> sequences_;       // from start() to finish()
    const model::PassResult* scores_ = nullptr;
    std::vector<model::RowNoise> noises_; // of a pass's rows
    std::vector<DraftedRow> drafted_rows_;
    std::vector<std::byte> sent_;     // status word, then each sequence's rows
    std::vector<std::byte> gathered_; // the same of every rank
    std::vector<float> hidden_;       // for share_hidden()
};

} // namespace entrodraft::spec
