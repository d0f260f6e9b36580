// Encodes the rows of a beam search, which travel to the coordinator. For each row, each rank sends its sum of
// exponentials and its few best logits: the search needs no more.
//
// Called by target_rows.cpp and by the drafter.
#pragma once

#include "model/cpu/kernels.h"
#include "spec/beams/beam_search.h"
#include "spec/gpu/device_round.h"

#include <cstddef>
#include <span>
#include <vector>

namespace entrodraft::spec {

// Bytes of a rank's slice of a row with `n` candidates.
std::size_t beam_row_bytes(std::size_t n);
// A slice's statistics and its best allowed tokens, at most n. Their log_prob is their logit.
struct BeamRowPart {
    model::LogitStats stats;
    std::vector<BeamCandidate> best;
};
// `all` is the whole slice, which the sum covers. `allowed` is its beginning, with -infinity for tokens that are not
// allowed. Token ids count from `first_token`.
BeamRowPart beam_row_part(std::span<const float> all, std::span<const float> allowed, TokenId first_token,
                          std::size_t n);
// The same from a row whose best tokens a GPU has selected.
BeamRowPart beam_row_part(const RankedRow& selected, TokenId first_token);
void encode_beam_row(BeamRowPart part, std::size_t n, std::span<std::byte> to);
// The best n candidates of a row, from the parts of all ranks in rank order. Throws std::runtime_error if a logit is
// NaN or the largest is infinite.
std::vector<BeamCandidate> decode_beam_row(std::span<const std::span<const std::byte>> parts, std::size_t n);

// log_softmax of a row. Throws std::runtime_error if a logit is NaN or the largest is infinite.
std::vector<float> log_probs_of(std::span<const float> row);

} // namespace entrodraft::spec
