// A weight matrix in the layout that the kernels need: outputs in SIMD lanes, and one contiguous stream per thread.
//
// Thread t has a range of outputs in units of 16. A unit is a sequence of 64-byte lines along K (kernels::LinearArgs).
// The kernels read a few units side by side, and read each weight only once. All matrices of a decoder follow one
// another in a WeightArena, in the order in which a pass reads them. So the prefetch at the end of one matrix loads the
// beginning of the next.
#pragma once

#include "dist/layout/shard.h"
#include "model/cpu/kernels.h"
#include "model/cpu/packing.h"
#include "model/families/config.h"
#include "model/files/tensor_view.h"
#include "model/host/buffer.h"

#include <cstddef>
#include <span>
#include <vector>

namespace entrodraft::model {

// Returns the k for the size of a thread's scratch, for matrices of up to k inputs.
constexpr int scratch_inputs(int k) {
    return k + kernels::kLinearPiece - 1; // with a lead
}

// Rows `outputs`, `step` apart, and columns `inputs` of a stored [out][in] matrix, or of several stacked matrices.
// Without a tensor: that many rows of zeros.
struct MatrixPart {
    const TensorView* tensor = nullptr;
    dist::Slice outputs;
    dist::Slice inputs;
    bool transposed = false; // stored [in][out]
    std::int64_t step = 1;
};

class PackedMatrix {
  public:
    PackedMatrix() = default;
    // A matrix of n outputs and k inputs, divided among `n_threads`. Its memory comes from WeightArena::place.
    PackedMatrix(int n, int k, PackedFormat format, int n_threads);

    int n() const { return n_; }
    int n_padded() const { return n_padded_; } // room that a row of results needs
    int k() const { return k_; }
    std::size_t bytes() const;
    dist::Slice outputs_of(int thread) const { return parts_[thread].outputs; } // in n_padded

    // Fills this thread's part from parts stacked along the outputs. Each output takes the inputs that its part names,
    // then zeros. int8 scales are those of whole stored rows, so that any slice of inputs is quantised alike. Throws
    // BadFile on a stored type that holds no weights. One call per thread.
    void load(std::span<const MatrixPart> stacked, int thread);
    // y[r][this thread's outputs] = or += x[r] . w, for every row. `scratch` is the thread's own, with
    // kernels::linear_scratch_floats(rows, scratch_inputs(k)) floats; `is_prompt` is as in LinearArgs. One call per
    // thread.
    void multiply(const kernels::Kernels& kernels, int thread, const float* x, std::size_t x_stride, int rows, float* y,
                  std::size_t y_stride, bool add, float* scratch, bool is_prompt = false) const;
    // Computes logits y = x . w. Their running sums over the first `counted` outputs go to stats[r], which is cleared
    // first. One call per thread.
    void multiply_logits(const kernels::Kernels& kernels, int thread, const float* x, std::size_t x_stride, int rows,
                         float* y, std::size_t y_stride, float* scratch, kernels::LaneStats* stats, int counted) const;

    // out[i] = weight of (output, input i) for inputs in `range`: a row of a tied embedding.
    void read_output(int output, dist::Slice range, float* out) const;

  private:
    friend class WeightArena;
    struct ThreadPart {
        dist::Slice outputs;
        std::byte* data = nullptr; // ungrouped int8: a float scale per output, then the units; else the units only
    };
    bool has_row_scales() const { return format_.type == WeightType::int8 && format_.groups.size == 0; }
    std::size_t scale_bytes(const ThreadPart& part) const;
    std::size_t unit_bytes() const;
    std::size_t part_bytes(const ThreadPart& part) const;
    kernels::LinearArgs arguments(const ThreadPart& part, const float* x, std::size_t x_stride, int rows, float* y,
                                  std::size_t y_stride, float* scratch) const;

    int n_ = 0;
    int n_padded_ = 0;
    int k_ = 0;
    PackedFormat format_;
    std::vector<ThreadPart> parts_;
};

// One allocation for all packed matrices of a decoder.
class WeightArena {
  public:
    explicit WeightArena(int n_threads);
    // Reserves room after the matrices placed before. The matrix must not move until allocate().
    void place(PackedMatrix& matrix);
    // Throws std::bad_alloc. After it every placed matrix has its memory.
    void allocate();
    std::size_t bytes() const { return memory_.bytes(); }

  private:
    std::vector<PackedMatrix*> matrices_;
    std::size_t n_threads_;
    Buffer memory_;
};

} // namespace entrodraft::model
