// What each rank hands over of a pass's rows, and what the coordinator finds in it: one gather over the replica, a
// status word a rank first.
//
// The form of a row is fixed by the options of run and request, never by values, so that every rank sends the same
// number of bytes. Penalties and bans are applied here, by each rank on its slice, each row with its own prefix.
// Judges nothing (judge.h does). Called by the round.
#pragma once

#include "entrodraft/dist/communicator.h"
#include "entrodraft/dist/layout.h"
#include "entrodraft/model/decoder.h"
#include "entrodraft/spec/gumbel.h"
#include "entrodraft/spec/request.h"
#include "entrodraft/spec/verify.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace entrodraft::spec {

enum class RowForm {
    best,       // the rank's arg max
    noisy_best, // the same with gumbel noise on the logits
    shortlist,  // what top-k and min-p leave of the rank's tokens under gumbel noise (gumbel.h)
    logits,     // all of the rank's slice
};

struct JudgingOptions {
    AcceptanceOptions acceptance;
    int vocab_size = 0;          // tokens that both models and the tokenizer know
    bool record_margins = false; // of arg max and noisy best
};

// Local.
RowForm row_form(const JudgingOptions& options, const SamplingOptions& sampling);

// A pass's rows on this rank: after `prefix` and 0, 1, ... of `drafted`; none at all between rounds.
struct RankRows {
    const model::PassResult* scores = nullptr;
    std::span<const TokenId> prefix;
    std::span<const TokenId> drafted;
};

class RowGather {
  public:
    // `target` is this rank's; all outlive it.
    RowGather(const JudgingOptions& options, const dist::RankLayout& layout, dist::Communicator& replica,
              const model::Decoder& target);

    // Of what is gathered from now on. Local, on every rank alike.
    void begin_sequence(const Request& request);
    // What to ask of the target's pass. Local.
    model::LogitSummary summary() const;
    // Throws std::runtime_error where a logit is no number. Collective over the replica.
    void gather(std::uint64_t status, const RankRows& rows, dist::Deadline deadline);

    // What came of it, on the coordinator alone.
    bool any_status(std::uint64_t status) const;
    RowForm form() const { return form_; }
    // Arg max or noisy best of a row; its runner_up where margins are recorded, else no number. Throws
    // NothingToSay where no token is left.
    BestToken best(std::size_t row) const;
    // [vocab_size], of form logits.
    std::span<const float> logits(std::size_t row) const;

  private:
    struct View { // of this rank's rows, after processing
        std::span<const float> logits;
        std::size_t stride = 0;
        std::size_t local = 0; // tokens of the slice
        std::span<const float> row(std::size_t i) const { return logits.subspan(i * stride, local); }
    };

    std::size_t row_bytes() const;
    std::size_t known() const;
    View view_of(const RankRows& rows);
    void write_row(const View& view, const RankRows& rows, std::size_t row, std::span<std::byte> to);
    BestToken best_of_slice(std::span<const float> logits, const RankRows& rows, std::size_t row) const;
    std::span<const std::byte> gathered_row(int rank, std::size_t row) const;
    int first_target_rank() const;
    void assemble(std::size_t rows);

    JudgingOptions options_;
    const dist::RankLayout& layout_;
    dist::Communicator& replica_;
    const model::Decoder& target_;
    std::size_t slice_; // most vocabulary a rank holds
    SamplingOptions sampling_;
    std::optional<GumbelNoise> noise_;
    std::optional<LogitProcessor> processor_;
    RowForm form_ = RowForm::best;
    std::uint64_t position_ = 0; // in the sequence, of the token that row 0 decides

    std::vector<std::byte> sent_;     // status word, then rows
    std::vector<std::byte> gathered_; // the same of every rank
    std::vector<float> processed_;    // [rows][local]
    std::vector<float> assembled_;    // [rows][vocab of the target]
    std::span<const float> rows_;     // of form logits: [rows][row_stride_]
    std::size_t row_stride_ = 0;
};

} // namespace entrodraft::spec
