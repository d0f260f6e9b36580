// A caller's work on a GPU that belongs to a pass. It is enqueued after the pass's logits, as a part of the graph. It
// keeps rows of logits on the GPU, reduces them, or decides whether the device makes another row by itself.
//
// No CUDA header is needed. Implemented in spec/gpu; called by gpu/decoder. Decoders of other devices ignore it.
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

// The rows that a loop has made; the pass's own row comes first.
struct LoopState {
    int n_rows;
    int max_rows;  // set by the host
    int first_row; // of the last pass
    int unused;
    struct Row {
        DeviceLogitStats stats;
        DeviceNoisy noisy;
    } rows[kMaxLoopRows];

    // Returns the size of the state with its first n rows.
    static constexpr std::size_t bytes_of_rows(int n) {
        return offsetof(LoopState, rows) + static_cast<std::size_t>(n) * sizeof(Row);
    }
};

// A loop as kernels need it, in device memory; see device_loop.cuh.
struct DeviceLoop {
    PassTable* table = nullptr;              // its first rows become those of the next pass
    const DeviceLogitStats* stats = nullptr; // [1], of the last row
    const DeviceNoisy* noisy = nullptr;      // [1]; null: rows have no noise
    LoopState* state = nullptr;
    std::int32_t* parents = nullptr;  // [kMaxLoopRows]: for each row of the next pass, its parent row in this pass
    unsigned long long condition = 0; // handle of the graph's repeated part
};

} // namespace gpu

// A pass's rows of logits, on the device. A loop's further rows lie in the same memory.
struct DeviceLogits {
    const gpu::Stream& stream;
    dist::Communicator& tp;               // the ranks that the vocabulary is sharded across
    int vocab_size = 0;                   // of the model
    dist::Slice local_vocab;              // this rank's tokens
    const float* logits = nullptr;        // [rows][local_vocab.size()]
    int rows = 0;                         // with padding
    int counted = 0;                      // tokens that count, starting at the first: Pass::summary_vocab
    const std::int32_t* tokens = nullptr; // [local_vocab.size()], of a draft head with a smaller vocabulary; or null
    const gpu::DeviceLogitStats* stats = nullptr; // [rows], if the pass has a summary

    std::size_t stride() const { return static_cast<std::size_t>(local_vocab.size()); }
};

// An extension outlives the decoder whose passes it belongs to: their graphs hold the addresses of its memory.
class DeviceExtension {
  public:
    virtual ~DeviceExtension() = default;
    // Passes of the same form share a graph.
    virtual int form() const { return 0; }
    // Called before a pass: takes the memory it needs. Throws dist::Error, dist::Timeout. Collective over logits.tp.
    virtual void prepare(const DeviceLogits& logits, dist::Deadline deadline) = 0;

    // This and the following put work on the stream. Copies the pass's tables to the device, before the pass.
    virtual void copy_in(const DeviceLogits& logits) = 0;
    // Runs after the logits and summaries of the pass, and of every further row of its loop. Collective over logits.tp.
    virtual void enqueue(const DeviceLogits& logits) = 0;
    // Copies results to the host, after the pass; not those of a loop.
    virtual void copy_out(const DeviceLogits& /*logits*/) {}

    // Largest number of rows of a loop, the pass's own included. A pass loops if only its last row has a summary and no
    // logits go to the host. It goes on while the kernel that decide() enqueues wants another pass (device_loop.cuh).
    virtual int max_rows() const { return 1; }
    // Rows of a further pass, with padding: a power of two, all rows of the text's tree. 0: a chain of one row per
    // pass, whose rows are in PassResult.
    virtual int tree_width() const { return 0; }
    virtual void decide(const gpu::Stream& /*stream*/, const gpu::DeviceLoop& /*loop*/) {}
    // Copies results of a tree's loop of at most that many rows to the host, after the loop. Uses copies only.
    virtual void copy_loop_out(const gpu::Stream& /*stream*/, int /*rows*/) {}
};

} // namespace entrodraft::model
