// See mapped_file.h.
#include "model/checkpoint/mapped_file.h"

#include "model/checkpoint/bad_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <system_error>

namespace entrodraft::model {
namespace {

constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/";

FileIdentity identity_of(const struct stat& about) {
    const auto ns = [](const timespec& time) { return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; };
    return {about.st_dev, about.st_ino, static_cast<std::uint64_t>(about.st_size), ns(about.st_mtim),
            ns(about.st_ctim)};
}

} // namespace

MappedFile::MappedFile(const std::filesystem::path& path, std::size_t min_bytes, std::string_view format)
    : name_(path.string()) {
    // O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        const std::string reason = system_reason();
        std::error_code unused; // then it is not a link
        const auto target = std::filesystem::read_symlink(path, unused);
        throw BadFile(name_ + (target.empty() ? "" : ", a link to " + target.string()) +
                      ": cannot be opened: " + reason);
    }
    const struct Closer {
        int descriptor;
        ~Closer() { ::close(descriptor); }
    } closer{descriptor};
    struct stat about {};
    if (::fstat(descriptor, &about) != 0) throw BadFile(name_ + ": " + system_reason());
    if (!S_ISREG(about.st_mode)) throw BadFile(name_ + ": not a regular file");
    identity_ = identity_of(about);
    size_ = static_cast<std::size_t>(about.st_size);
    if (size_ < std::max<std::size_t>(min_bytes, 1)) {
        throw BadFile(fmt::format("{}: {} bytes are too few for a {} file; download it again", name_, size_, format));
    }
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data_ == MAP_FAILED) throw BadFile(name_ + ": cannot be mapped: " + system_reason());
    if (text().starts_with(kLfsPointer)) {
        ::munmap(data_, size_);
        throw BadFile(name_ + ": this is a Git LFS pointer, not the file; fetch the file with git lfs pull");
    }
}

MappedFile::~MappedFile() {
    ::munmap(data_, size_);
}

} // namespace entrodraft::model
