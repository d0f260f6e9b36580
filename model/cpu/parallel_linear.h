// The types of layers in tensor parallelism. Each type cuts one dimension, and says where ranks must meet.
//
// - Split::columns: outputs are cut. Every rank makes its own part of the result, without communication.
// - Split::rows: inputs are cut. Every rank makes a part of the sum, which takes one all-reduce.
// - VocabEmbedding: token ids are cut. Lookup is an all-reduce of rows; the head yields a slice of logits.
//
// All threads of the team call every method (see ThreadTeam::run); where a method says so, all ranks call it too.
#pragma once

#include "dist/comm/communicator.h"
#include "model/cpu/packed_matrix.h"
#include "model/host/thread_team.h"

#include <exception>
#include <utility>
#include <vector>

namespace entrodraft::model {

// The state that layers share in a running pass. `failure` keeps the first exception: threads must not throw.
struct PassContext {
    const kernels::Kernels* kernels = nullptr;
    ThreadTeam* team = nullptr;
    dist::Communicator* tp = nullptr;
    dist::Deadline deadline;
    int thread = 0;
    bool is_prompt = false;   // Pass::is_prompt
    float* scratch = nullptr; // this thread's own, for PackedMatrix::multiply
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
    // Takes matrices stacked along the outputs; all except the last have whole units.
    explicit ShardedLinear(std::vector<PackedMatrix> matrices) : matrices_(std::move(matrices)) {}
    std::vector<PackedMatrix>& matrices() { return matrices_; }
    const PackedMatrix& matrix() const { return matrices_.front(); } // the only one, or the first
    std::size_t y_stride() const;                                    // smallest stride of y
    // [n] or empty. With Split::rows, only one rank has a bias, since the ranks' parts are summed.
    void set_bias(std::vector<float> bias);
    // y[r][own outputs of this thread] = or += x[r] . w + bias, this rank's part of it. Without a barrier.
    void apply(const PassContext& pass, Activations x, Activations y, bool add = false) const;

  private:
    std::vector<PackedMatrix> matrices_ = std::vector<PackedMatrix>(1);
    std::vector<float> bias_; // [y_stride()] or empty
};

// The embedding as one rank holds it.
struct VocabEmbedding {
    const PackedMatrix* table = nullptr; // [vocab][embedding_size]
    dist::Slice vocab;                   // the token ids of its rows

    // x[r] = row of tokens[r], from the rank that holds it. A barrier follows. Collective over tp.
    void look_up(const PassContext& pass, const std::vector<std::int32_t>& tokens, Activations x) const;
};

} // namespace entrodraft::model
