// Memory of a GPU, pinned memory of the host, streams and graphs, as objects that free their resources.
//
// No CUDA header is needed to use them. Every function here throws dist::Error with the call that failed. Only
// Stream::wait waits for the device. Used by gpu/decoder, the benches and tests.
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
// A handle that CUDA has returned.
template <void (*release)(void*)> using Held = std::unique_ptr<void, Releaser<release>>;

// A work queue of the device that is current at its construction. Move only.
class Stream {
  public:
    Stream();
    void* handle() const { return handle_.get(); } // cudaStream_t

    // Waits until all work on the stream has ended. Throws dist::Timeout if that takes longer.
    void wait(double timeout_seconds) const;

  private:
    Held<destroy_stream> handle_;
};

// Work of a stream, kept so that it can be launched as one. Made by putting on the stream the calls that would run it
// at once. Move only.
class Graph {
  public:
    Graph() = default;
    // `record` puts the work on the stream; none of it runs yet.
    Graph(const Stream& stream, const std::function<void()>& record);
    // Runs `first`, then `again` while the condition is set, then `last`, all on the device. A kernel of `first` or
    // `again` sets the condition that `first` was given. `again` has neither host work nor collectives.
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

// Arrays of plain numbers in either memory.
template <typename T, typename Bytes> class ArrayOf {
  public:
    ArrayOf() = default;
    explicit ArrayOf(std::size_t count) : bytes_(count * sizeof(T)), count_(count) {}
    T* data() const { return reinterpret_cast<T*>(bytes_.data()); } // null if empty
    std::size_t size() const { return count_; }
    std::span<T> span() const { return {data(), count_}; }

  private:
    Bytes bytes_;
    std::size_t count_ = 0;
};
template <typename T> using DeviceArray = ArrayOf<T, DeviceBytes>;
template <typename T> using PinnedArray = ArrayOf<T, PinnedBytes>;

// Copies in the order of the stream. Host memory that is not pinned is read or written before the call returns.
void copy(const Stream& stream, void* to, const void* from, std::size_t bytes);

// As copy(), for few bytes, a multiple of 4, between the device and pinned memory. A kernel reads or writes the host's
// memory. In a graph it starts sooner than a copy engine, and concurrent kernels need not wait for one.
void copy_by_kernel(const Stream& stream, void* to, const void* from, std::size_t bytes);

struct DeviceMemory {
    std::size_t free_bytes = 0, total_bytes = 0;
};
// Returns the memory of the current device.
DeviceMemory device_memory();

} // namespace entrodraft::model::gpu
