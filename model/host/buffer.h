// Owned memory for weights, caches and activations: 64-byte aligned, zeroed, mapped page by page on first touch.
#pragma once

#include <cstddef>
#include <utility>

namespace entrodraft::model {

enum class Pages { small, huge }; // huge: asked for, not promised; for large arrays that are read whole

class Buffer {
  public:
    Buffer() = default;
    // Throws std::bad_alloc with nothing allocated.
    explicit Buffer(std::size_t bytes, Pages pages = Pages::small);
    Buffer(Buffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Buffer& operator=(Buffer&& other) noexcept;
    ~Buffer();

    std::size_t bytes() const { return bytes_; }
    void* data() { return data_; }
    const void* data() const { return data_; }
    template <typename T> T* as() { return static_cast<T*>(data_); }
    template <typename T> const T* as() const { return static_cast<const T*>(data_); }

  private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

} // namespace entrodraft::model
