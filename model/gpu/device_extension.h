// Work of the caller's on a GPU that belongs to a pass: enqueued behind the pass's logits, as a part of its graph. It
// keeps rows of logits there, reduces them, or decides whether the device makes another row by itself.
//
// No CUDA header is needed. Implemented in spec/gpu; called by gpu/decoder. Decoders of other devices know none.
#pragma once

#include "dist/comm/communicator.h"
#include "dist/layout/shard.h"
#include "model/gpu/kernels.h"
#include "model/gpu/memory.h"

#include <cstddef>

namespace entrodraft::model {

namespace gpu {

struct PassTable;

inline constexpr int kMaxLoopRows = 128;

// The rows that a loop has made, the pass's own first.
struct LoopState {
    int n_rows;
    int max_rows;  // set by the host
    int first_row; // of the last pass
    int unused;
    struct Row {
        DeviceLogitStats stats;
        DeviceNoisy noisy;
    } rows[kMaxLoopRows];

    // Up to and including so many rows.
    static constexpr std::size_t bytes_of_rows(int n) {
        return offsetof(LoopState, rows) + static_cast<std::size_t>(n) * sizeof(Row);
    }
};

// What kernels need of a loop, in device memory; see device_loop.cuh.
struct DeviceLoop {
    PassTable* table = nullptr;              // its first rows become those of the next pass
    const DeviceLogitStats* stats = nullptr; // [1], of the last row
    const DeviceNoisy* noisy = nullptr;      // [1]; null: rows have no noise
    LoopState* state = nullptr;
    std::int32_t* parents = nullptr; // [kMaxLoopRows]: of each row of the next pass the row of this one that it follows
    unsigned long long condition = 0; // of the graph's repeated part
};

} // namespace gpu

// A pass's rows of logits, on the device. A loop's further rows lie in the same memory.
struct DeviceLogits {
    const gpu::Stream& stream;
    dist::Communicator& tp;                       // the ranks that the vocabulary is sharded across
    int vocab_size = 0;                           // of the model
    dist::Slice local_vocab;                      // this rank's tokens
    const float* logits = nullptr;                // [rows][local_vocab.size()]
    int rows = 0;                                 // with padding
    int counted = 0;                              // tokens that count, from the first: Pass::summary_vocab
    const std::int32_t* tokens = nullptr;         // [local_vocab.size()], of a draft head that knows fewer; or null
    const gpu::DeviceLogitStats* stats = nullptr; // [rows], where the pass has a summary

    std::size_t stride() const { return static_cast<std::size_t>(local_vocab.size()); }
};

// Outlives the decoder whose passes it belongs to: their graphs hold the addresses of its memory.
class DeviceExtension {
  public:
    virtual ~DeviceExtension() = default;
    // Passes of one form share a graph.
    virtual int form() const { return 0; }
    // Before a pass: memory that it needs. Throws dist::Error, dist::Timeout. Collective over logits.tp.
    virtual void prepare(const DeviceLogits& logits, dist::Deadline deadline) = 0;

    // These put work on the stream. The pass's tables to the device, before it.
    virtual void copy_in(const DeviceLogits& logits) = 0;
    // Behind the logits and summaries of the pass, and of every further row of its loop. Collective over logits.tp.
    virtual void enqueue(const DeviceLogits& logits) = 0;
    // Results to the host, behind the pass; not those of a loop.
    virtual void copy_out(const DeviceLogits& /*logits*/) {}

    // A loop: a pass whose last row alone has a summary and no logits on the host goes on with at most so many rows,
    // its own included, as long as what decide() enqueues behind each pass wants another (device_loop.cuh).
    virtual int max_rows() const { return 1; }
    // Rows of a further pass, with padding: a power of two, all of the text's tree; 0: a chain, of a row each, which
    // PassResult has.
    virtual int tree_width() const { return 0; }
    virtual void decide(const gpu::Stream& /*stream*/, const gpu::DeviceLoop& /*loop*/) {}
    // Results of a tree's loop of at most so many rows to the host, behind it. No kernel.
    virtual void copy_loop_out(const gpu::Stream& /*stream*/, int /*rows*/) {}
};

} // namespace entrodraft::model
