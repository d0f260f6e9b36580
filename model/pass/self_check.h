// Compares two decoders of the same model: both compute a pass of three rows.
//
// It is for devices and kernels that have not been tried on this machine. --device auto calls it when it loads a model,
// and so does doctor.
#pragma once

#include "model/pass/decoder.h"

#include <string>

namespace entrodraft::model {

inline constexpr int kCheckedRows = 3;

// Returns the largest allowed distance of hidden states and logits of a row: the root mean square of the difference
// over the row's. `tested`: the weight type of the tested decoder. The other one has the same, or, for float8 weights,
// the file's type. Pure.
double self_check_bound(WeightType tested, const ModelConfig& config);

// Describes a difference, as "logits of row 2 differ by 0.81 (bound 0.03), layer 5 first"; empty: there is none beyond
// the bound, on this rank's slice of the vocabulary. `tested` computes its rows three times: a GPU computes them at
// once, then records them, then repeats the recording. All bits must be equal. Both decoders have an empty slot 0 of
// `context` + kCheckedRows positions, and leave it empty. They first read `context` tokens, and with an encoder a
// source of at most kCheckedRows tokens. Collective over the groups of both.
std::string difference_of(Decoder& tested, Decoder& other, double bound, int context = 0);

} // namespace entrodraft::model
