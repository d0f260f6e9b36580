// Memory of a GPU, pinned memory of the host, streams and graphs, as objects that free what they hold.
//
// No CUDA header is needed to use them. Everything here throws dist::Error with the call that failed; nothing waits for
// the device but Stream::wait. Used by gpu/decoder, the benches and tests.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace entrodraft::model::gpu {

void destroy_stream(void* stream);
void destroy_graph(void* executable);
void free_device(void* bytes);
void free_pinned(void* bytes);
template <void (*release)(void*)> struct Releaser {
    void operator()(void* held) const noexcept { release(held); }
};
// What CUDA has handed out.
template <void (*release)(void*)> using Held = std::unique_ptr<void, Releaser<release>>;

// A work queue of the device that is current when it is made. Move only.
class Stream {
  public:
    Stream();
    void* handle() const { return handle_.get(); } // cudaStream_t

    // Until all work put on it has ended. Throws dist::Timeout when that takes longer.
    void wait(double timeout_seconds) const;

  private:
    Held<destroy_stream> handle_;
};

// Work of a stream, kept to be launched as one. Made by putting the same calls on the stream as would do it at once.
// Move only.
class Graph {
  public:
    Graph() = default;
    // `record` puts the work on the stream; nothing of it runs.
    Graph(const Stream& stream, const std::function<void()>& record);
    // `first`, then `again` as long as the condition is set that a kernel of either was handed, then `last`: all on the
    // device. No host work and no collectives in `again`.
    struct Repeated {
        std::function<void(unsigned long long condition)> first;
        std::function<void()> again, last;
    };
    Graph(const Stream& stream, const Repeated& parts);
    explicit operator bool() const { return executable_ != nullptr; }
    void launch(const Stream& stream) const;

  private:
    void instantiate(void* recording);

    Held<destroy_graph> executable_;
};

// Bytes on the device, zeroed. Move only.
class DeviceBytes {
  public:
    DeviceBytes() = default;
    explicit DeviceBytes(std::size_t bytes);
    std::byte* data() const { return static_cast<std::byte*>(data_.get()); }
    std::size_t size() const { return bytes_; }

  private:
    Held<free_device> data_;
    std::size_t bytes_ = 0;
};

// Host memory that copies to and from a device need not stage. Move only.
class PinnedBytes {
  public:
    PinnedBytes() = default;
    explicit PinnedBytes(std::size_t bytes);
    std::byte* data() const { return static_cast<std::byte*>(data_.get()); }

  private:
    Held<free_pinned> data_;
};

// Arrays of plain numbers over either.
template <typename T, typename Bytes> class ArrayOf {
  public:
    ArrayOf() = default;
    explicit ArrayOf(std::size_t count) : bytes_(count * sizeof(T)), count_(count) {}
    T* data() const { return reinterpret_cast<T*>(bytes_.data()); } // null of an empty one
    std::size_t size() const { return count_; }
    std::span<T> span() const { return {data(), count_}; }

  private:
    Bytes bytes_;
    std::size_t count_ = 0;
};
template <typename T> using DeviceArray = ArrayOf<T, DeviceBytes>;
template <typename T> using PinnedArray = ArrayOf<T, PinnedBytes>;

// In the order of the stream; host memory that is not pinned is read or written before the call returns.
void copy(const Stream& stream, void* to, const void* from, std::size_t bytes);

// As copy(), of few bytes, a multiple of 4, between the device and pinned memory: by a kernel that reads or writes the
// host's memory. As a node of a graph it starts sooner than a copy engine, and kernels beside it need not wait for one.
void copy_by_kernel(const Stream& stream, void* to, const void* from, std::size_t bytes);

struct DeviceMemory {
    std::size_t free_bytes = 0, total_bytes = 0;
};
// Of the current device.
DeviceMemory device_memory();

} // namespace entrodraft::model::gpu
