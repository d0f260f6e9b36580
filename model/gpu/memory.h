// Memory of a GPU, pinned memory of the host, streams and graphs, as objects that free what they hold.
//
// No CUDA header is needed to use them. Everything here throws dist::Error with the call that failed; nothing waits for
// the device but Stream::wait. Used by gpu/decoder, the benches and tests.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace entrodraft::model::gpu {

// A work queue of the device that is current when it is made. Move only.
class Stream {
  public:
    Stream();
    Stream(Stream&& other) noexcept;
    Stream& operator=(Stream&&) = delete;
    ~Stream();
    void* handle() const { return handle_; } // cudaStream_t

    // Until all work put on it has ended. Throws dist::Timeout when that takes longer.
    void wait(double timeout_seconds) const;

  private:
    void* handle_ = nullptr;
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
        std::function<void(unsigned long long condition)> first, again;
        std::function<void()> last;
    };
    Graph(const Stream& stream, const Repeated& parts);
    Graph(Graph&& other) noexcept;
    Graph& operator=(Graph&& other) noexcept;
    ~Graph();
    explicit operator bool() const { return executable_ != nullptr; }
    void launch(const Stream& stream) const;

  private:
    explicit Graph(void* graph);

    void* executable_ = nullptr;
};

// Bytes on the device, zeroed. Move only.
class DeviceBytes {
  public:
    DeviceBytes() = default;
    explicit DeviceBytes(std::size_t bytes);
    DeviceBytes(DeviceBytes&& other) noexcept;
    DeviceBytes& operator=(DeviceBytes&& other) noexcept;
    ~DeviceBytes();
    std::byte* data() const { return data_; }
    std::size_t size() const { return bytes_; }

  private:
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

// Host memory that copies to and from a device need not stage. Move only.
class PinnedBytes {
  public:
    PinnedBytes() = default;
    explicit PinnedBytes(std::size_t bytes);
    PinnedBytes(PinnedBytes&& other) noexcept;
    PinnedBytes& operator=(PinnedBytes&& other) noexcept;
    ~PinnedBytes();
    std::byte* data() const { return data_; }

  private:
    std::byte* data_ = nullptr;
};

// Arrays of plain numbers over either.
template <typename T, typename Bytes> class ArrayOf {
  public:
    ArrayOf() = default;
    explicit ArrayOf(std::size_t count) : bytes_(count * sizeof(T)), count_(count) {}
    T* data() const { return reinterpret_cast<T*>(bytes_.data()); }
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

struct DeviceMemory {
    std::size_t free_bytes = 0, total_bytes = 0;
};
// Of the current device. Local.
DeviceMemory device_memory();

} // namespace entrodraft::model::gpu
