// A decoder on the threads of a CPU. Each thread of a team walks the whole pass; what they share out is outputs, heads
// and rows, and they meet at barriers.
#pragma once

#include "model/host/thread_team.h"
#include "model/pass/decoder.h"

#include <memory>

namespace entrodraft::model {

// Reads this rank's slice of the checkpoint. `tp` spans the ranks the model is sharded across and outlives the decoder,
// as does `team`. Throws BadFile, std::invalid_argument (sizes and types that would work).
std::unique_ptr<Decoder> load_cpu_decoder(const Checkpoint& checkpoint, const ModelConfig& config,
                                          const DecoderOptions& options, dist::Communicator& tp, ThreadTeam& team);

} // namespace entrodraft::model
