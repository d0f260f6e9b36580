// Anonymous mappings behind Buffer.
#include "model/host/buffer.h"

#include <new>
#include <sys/mman.h>

namespace entrodraft::model {

namespace {
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
}

Buffer::Buffer(std::size_t bytes, Pages pages) : bytes_(bytes) {
    if (bytes == 0) return;
    // Large arrays start on a huge page's border, so that all of them can lie in huge pages.
    const std::size_t slack = pages == Pages::huge ? kHugePageBytes : 0;
    if (bytes > SIZE_MAX - slack) throw std::bad_alloc();
    void* mapping =
        mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    if (slack == 0) {
        data_ = mapping;
        return;
    }
    char* start = static_cast<char*>(mapping);
    const std::size_t offset =
        (kHugePageBytes - reinterpret_cast<std::size_t>(start) % kHugePageBytes) % kHugePageBytes;
    if (offset > 0) munmap(start, offset);
    if (slack > offset) {
        // Only whole pages can be given back; the remainder of the last page stays with the buffer.
        char* end = start + offset + (bytes + 4095) / 4096 * 4096;
        char* mapped_end = start + (bytes + slack + 4095) / 4096 * 4096;
        if (mapped_end > end) munmap(end, static_cast<std::size_t>(mapped_end - end));
    }
    data_ = start + offset;
    madvise(data_, bytes, MADV_HUGEPAGE); // a wish: correct without it
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

Buffer::~Buffer() {
    if (data_) munmap(data_, bytes_);
}

} // namespace entrodraft::model
