// Rows of a beam search on their way to the coordinator: of each row and rank the sum behind its probabilities and the
// first few logits, which is all that the search looks at.
//
// Called by target_rows.cpp and by the drafter.
#pragma once

#include "model/cpu/kernels.h"
#include "spec/beams/beam_search.h"
#include "spec/verify/device_verifier.h"

#include <cstddef>
#include <span>
#include <vector>

namespace entrodraft::spec {

// Of a rank's slice of a row. Bytes of `n` candidates.
std::size_t beam_row_bytes(std::size_t n);
// What a row's slice says of itself, and the first of its tokens that may follow, n at most, whose log_prob is their
// logit.
struct BeamRowPart {
    model::LogitStats stats;
    std::vector<BeamCandidate> best;
};
// `all` is the whole slice, whose sum counts, `allowed` the first of it that may follow (-infinity: not). Token ids
// count from `first_token`.
BeamRowPart beam_row_part(std::span<const float> all, std::span<const float> allowed, TokenId first_token,
                          std::size_t n);
// Of what a GPU has selected.
BeamRowPart beam_row_part(const RankedRow& selected, TokenId first_token);
void encode_beam_row(BeamRowPart part, std::size_t n, std::span<std::byte> to);
// Of what all ranks made of a row, in their order: the first n. Throws std::runtime_error where a logit is not a
// number.
std::vector<BeamCandidate> decode_beam_row(std::span<const std::span<const std::byte>> parts, std::size_t n);

// log_softmax of a row. Throws std::runtime_error where a logit is not a number.
std::vector<float> log_probs_of(std::span<const float> row);

} // namespace entrodraft::spec
