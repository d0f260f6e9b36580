// The typed layers of tensor parallelism: what is cut, which way, and where ranks must meet.
//
//   Split::columns   outputs are cut: every rank makes its own part of the result, no communication
//   Split::rows      inputs are cut: every rank makes a part of the sum, one all-reduce
//   VocabEmbedding   token ids are cut: lookup is an all-reduce of rows, the head yields a slice of logits
//
// Every method is called by all threads of the team (see ThreadTeam::run) and, where it says so, by all ranks.
#pragma once

#include "dist/comm/communicator.h"
#include "model/cpu/packed_matrix.h"
#include "model/host/thread_team.h"
#include "model/weights/rank_shard.h"

#include <exception>
#include <utility>
#include <vector>

namespace entrodraft::model {

// What the layers of one running pass share. `failure` keeps the first exception: threads must not throw.
struct PassContext {
    const kernels::Kernels* kernels = nullptr;
    ThreadTeam* team = nullptr;
    dist::Communicator* tp = nullptr;
    dist::Deadline deadline;
    int thread = 0;
    bool is_prompt = false;   // Pass::is_prompt
    float* scratch = nullptr; // this thread's, for PackedMatrix::multiply
    std::exception_ptr* failure = nullptr;

    void barrier() const { team->barrier(thread); }
    bool carries_residual() const { return tp->rank() == 0; }
    // Sums data over the ranks of tp; a barrier comes before and after. Collective over tp, called by all threads.
    void all_reduce(float* data, std::size_t count) const;
};

// Activations, float32; row r begins at data + r * stride.
struct Activations {
    float* data = nullptr; // [n_rows][stride]
    std::size_t stride = 0;
    int n_rows = 0;
    float* row(int r) const { return data + static_cast<std::size_t>(r) * stride; }
};

class ShardedLinear {
  public:
    ShardedLinear() = default;
    // Takes matrices one behind the other along the outputs, all but the last of whole units.
    explicit ShardedLinear(std::vector<PackedMatrix> matrices) : matrices_(std::move(matrices)) {}
    std::vector<PackedMatrix>& matrices() { return matrices_; }
    const PackedMatrix& matrix() const { return matrices_.front(); } // the only one, or the first
    std::size_t y_stride() const;                                    // at least
    // [n], or none. Of Split::rows on one rank only, since the ranks' parts are summed.
    void set_bias(std::vector<float> bias);
    // y[r][own outputs of this thread] = or += x[r] . w + bias, this rank's part of it. No barrier.
    void apply(const PassContext& pass, Activations x, Activations y, bool add = false) const;

  private:
    std::vector<PackedMatrix> matrices_ = std::vector<PackedMatrix>(1);
    std::vector<float> bias_; // [y_stride()] or empty
};

// The embedding as one rank holds it.
struct VocabEmbedding {
    const PackedMatrix* table = nullptr; // [vocab][embedding_size]
    dist::Slice vocab;                   // the token ids of its rows

    // x[r] = row of tokens[r], from whichever rank holds it. A barrier follows. Collective over tp.
    void look_up(const PassContext& pass, const std::vector<std::int32_t>& tokens, Activations x) const;
};

} // namespace entrodraft::model
