// A decoder on a GPU: the same rows, the same contract (pass/decoder.h) and the same transformer as on the CPU.
//
// A pass is one graph. The data that differs from pass to pass lies in device memory, so a graph is made once for every
// padded number of rows. Activations and cache have the number type of the weights; the residual stream and all sums
// are float32. A row's result depends neither on the rows next to it nor on their number (gpu/kernels.h).
#pragma once

#include "model/pass/decoder.h"

#include <memory>

namespace entrodraft::model::gpu {

// As load_cpu_decoder, into the memory of the current device. `tp` sums device memory in the order of a stream
// (Communicator::enqueue_all_reduce_sum); a group of one need not. Takes every WeightType. Throws BadFile, dist::Error,
// std::invalid_argument (the message names sizes and types that would work).
std::unique_ptr<Decoder> load_decoder(const Checkpoint& checkpoint, const ModelConfig& config,
                                      const DecoderOptions& options, dist::Communicator& tp);

} // namespace entrodraft::model::gpu
