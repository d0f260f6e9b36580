// A decoder on the threads of a CPU. Each thread of a team goes through the whole pass. The threads share outputs,
// heads and rows, and meet at barriers.
#pragma once

#include "model/host/thread_team.h"
#include "model/pass/decoder.h"

#include <memory>

namespace entrodraft::model {

// Reads this rank's slice of the checkpoint. `tp` has the ranks that the model is sharded across; it and `team` outlive
// the decoder. Throws BadFile, std::invalid_argument (its message names sizes and types that would work).
std::unique_ptr<Decoder> load_cpu_decoder(const Checkpoint& checkpoint, const ModelConfig& config,
                                          const DecoderOptions& options, dist::Communicator& tp, ThreadTeam& team);

} // namespace entrodraft::model
