// Whether a decoder computes what another one computes of the same model: a pass of three rows through both.
//
// For devices and kernels that have not been tried on this machine. Called where --device auto loads a model, and by
// doctor.
#pragma once

#include "model/pass/decoder.h"

#include <string>

namespace entrodraft::model {

inline constexpr int kCheckedRows = 3;

// How far hidden states and logits of a row may lie from the other decoder's: root mean square of the difference over
// that of the row. `tested`: the weights' type of the decoder in question; the other one has the same, or of float8
// weights those of the file. Pure.
double self_check_bound(WeightType tested, const ModelConfig& config);

// What differs, in a few words: "logits of row 2 differ by 0.81 (bound 0.03), layer 5 first"; empty: nothing beyond the
// bound, on this rank's slice of the vocabulary. `tested` computes its rows three times, as GPUs do it at once, when
// they record it, and when they repeat the recording: bits must be equal. Both have an empty slot 0 of `context` +
// kCheckedRows positions, and leave it so; `context` tokens are read before, and of models with an encoder a source of
// at most kCheckedRows tokens. Collective over the groups of both.
std::string difference_of(Decoder& tested, Decoder& other, double bound, int context = 0);

} // namespace entrodraft::model
