// One sequence's rows of a pass: what a rank hands over of them, and what the coordinator finds in what all handed
// over.
//
// The form of a row is fixed by the options of run and request, never by values, so that every rank sends the same
// number of bytes. Penalties and banned tokens are applied here, by each rank on its slice, each row with its own
// prefix. Verifies nothing (verifier.h does) and sends nothing (row_gather.h does).
#pragma once

#include "model/decoder.h"
#include "spec/request.h"
#include "spec/verify/gumbel.h"
#include "spec/verify/verify.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace entrodraft::spec {

enum class RowForm {
    best,       // the rank's arg max
    gumbel_max, // the same with gumbel noise on the logits
    shortlist,  // what top-k and min-p leave of the rank's tokens under gumbel noise (gumbel.h)
    logits,     // all of the rank's slice
    verified,   // what tp rank 0's GPU made of the row beside the draft's
};

struct VerifyOptions {
    AcceptanceOptions acceptance;
    int vocab_size = 0;          // tokens that both models and the tokenizer know
    bool record_margins = false; // of arg max and Gumbel-max sample
    bool whole_rows = false;     // logits are wanted whatever decides
};

// Local.
RowForm row_form(const VerifyOptions& options, const SamplingOptions& sampling);

// What all sequences of a replica have in common.
struct RowSetting {
    VerifyOptions options;
    const model::ModelConfig* config = nullptr; // the target's
    const model::Decoder* target = nullptr;     // this rank's shard; null where it holds none
    int tp_size = 1;
    int first_target_rank = 0;    // of the replica: a dedicated drafter is before them
    std::size_t slice_floats = 0; // most vocabulary a rank holds
};

// A sequence's rows on this rank: after `prefix` and 0, 1, ... of `drafted`.
struct RankRows {
    int slot = 0;
    const model::PassResult* scores = nullptr; // of no meaning on a rank without a shard
    std::size_t first = 0;                     // of the pass's rows of logits
    std::span<const TokenId> prefix;
    std::span<const TokenId> drafted;
    std::span<const float* const> draft_rows = {}; // Draft::kept, on the rank that has drafted; of form verified

    std::size_t count() const { return drafted.size() + 1; }
};

class SequenceRows {
  public:
    // `setting` outlives it.
    explicit SequenceRows(const RowSetting& setting) : setting_(&setting) {}

    // Of what is handed over from now on; whether that is `verified_on_device` the coordinator has broadcast. Local, on
    // every rank alike.
    void begin_sequence(const Request& request, bool verified_on_device = false);
    RowForm form() const { return form_; }
    // What to ask of the target's pass. Local.
    model::LogitNeeds needs() const;
    // The noise that the pass may add to the row after `position` tokens; of temperature 0 where it adds none. Local.
    model::RowNoise noise(std::uint64_t position) const;
    // What the pass is to verify of the row after `rows.prefix` and i of `rows.drafted`; of temperature 0 where it
    // verifies none. Local.
    model::DraftedRow drafted_row(const RankRows& rows, std::size_t i) const;
    std::size_t row_bytes() const;

    // This rank's part, [rows.count()][row_bytes()]; zeros without a shard. Local.
    void write(const RankRows& rows, std::span<std::byte> to);
    // Takes what was handed over: rank r's part of n rows begins at parts + r * stride, the first row decides what
    // is at `position`. Valid as long as `parts` is. Local.
    void take(std::span<const std::byte> parts, std::size_t stride, std::size_t n_rows, std::uint64_t position);
    // The same of a rank alone with form logits: nothing is copied where nothing is done to them. Local.
    void take_own(const RankRows& rows);

    // Arg max or Gumbel-max sample of a row; its runner_up where margins are recorded, else no number. Throws
    // NothingToSay where no token is left, std::runtime_error where a logit is no number.
    BestToken best(std::size_t row) const;
    // Of form verified.
    model::VerifiedRow verified(std::size_t row) const;
    // [vocab_size], of form logits.
    std::span<const float> logits(std::size_t row) const;

  private:
    struct View { // of this rank's rows, after processing
        std::span<const float> logits;
        std::size_t stride = 0;
        std::size_t local = 0; // tokens of the slice
        std::span<const float> row(std::size_t i) const {
            return logits.empty() ? logits : logits.subspan(i * stride, local);
        }
    };

    std::size_t known() const;
    View view_of(const RankRows& rows);
    void write_row(const View& view, const RankRows& rows, std::size_t row, std::span<std::byte> to);
    BestToken best_of_slice(std::span<const float> logits, const RankRows& rows, std::size_t row) const;
    std::span<const std::byte> part(int tp_rank, std::size_t row) const;
    void assemble(std::size_t n_rows);

    const RowSetting* setting_;
    SamplingOptions sampling_;
    std::optional<GumbelNoise> noise_;
    std::optional<RandomStream> resample_; // of form verified
    std::optional<LogitProcessor> processor_;
    RowForm form_ = RowForm::best;
    std::uint64_t position_ = 0; // in the sequence, of the token that row 0 decides

    std::span<const std::byte> parts_;
    std::size_t part_stride_ = 0;
    std::vector<float> processed_; // [rows][local]
    std::vector<float> assembled_; // [rows][vocab of the target]
    std::span<const float> rows_;  // of form logits: [rows][row_stride_]
    std::size_t row_stride_ = 0;
};

} // namespace entrodraft::spec
