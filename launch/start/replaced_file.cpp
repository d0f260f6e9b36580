#include "launch/start/replaced_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <stdexcept>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace entrodraft::launch {

namespace {

[[noreturn]] void fail(const std::string& file, const std::string& what) {
    throw std::runtime_error(file + ": " + what + ": " + std::strerror(errno));
}

// Returns the end of a chain of links; that file need not exist yet.
std::string end_of_links(const std::string& file) {
    constexpr int kMaxLinks = 40; // the kernel's limit
    std::filesystem::path end = file;
    for (int i = 0; i < kMaxLinks; ++i) {
        std::error_code is_no_link;
        const std::filesystem::path next = std::filesystem::read_symlink(end, is_no_link);
        if (is_no_link) return end.string();
        end = end.parent_path() / next;
    }
    throw std::runtime_error(file + ": is a chain of links without an end; name another file");
}

} // namespace

bool are_one_file(const std::string& a, const std::string& b) {
    std::error_code ignored;
    if (std::filesystem::equivalent(a, b, ignored)) return true;
    const auto whole = [&](const std::string& file) {
        return std::filesystem::weakly_canonical(std::filesystem::absolute(file, ignored), ignored);
    };
    return whole(a) == whole(b);
}

void require_replaceable(const std::string& file) {
    struct stat info {};
    if (stat(file.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
        throw std::runtime_error(file + ": is not a regular file; name another");
    const std::string directory = std::filesystem::path(end_of_links(file)).parent_path().string();
    if (access(directory.empty() ? "." : directory.c_str(), W_OK | X_OK) != 0) fail(file, "cannot be written");
}

ReplacedFile::ReplacedFile(const std::string& file)
    : file_(end_of_links(file)), beside_(fmt::format("{}.part-{}", file_, getpid())) {
    require_replaceable(file_);
    struct stat old {};
    const bool is_there = stat(file_.c_str(), &old) == 0;
    constexpr mode_t kForAll = 0666, kForOwner = 0600, kPermissions = 07777;
    descriptor_ =
        open(beside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, is_there ? kForOwner : kForAll);
    if (descriptor_ < 0) fail(beside_, "cannot be written");
    if (is_there && fchmod(descriptor_, old.st_mode & kPermissions) != 0) fail(beside_, "cannot have the old mode");
}

ReplacedFile::~ReplacedFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!beside_.empty()) unlink(beside_.c_str());
}

void ReplacedFile::write(std::span<const std::byte> bytes) {
    constexpr std::size_t kMaxAtOnce = std::size_t{1} << 30;
    while (!bytes.empty()) {
        const ssize_t written = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kMaxAtOnce));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail(file_, "cannot be written");
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
}

void ReplacedFile::commit() {
    if (fsync(descriptor_) != 0) fail(file_, "cannot be written");
    if (close(std::exchange(descriptor_, -1)) != 0) fail(file_, "cannot be written");
    if (std::rename(beside_.c_str(), file_.c_str()) != 0) fail(file_, "cannot be replaced");
    beside_.clear();
}

void replace_file(const std::string& file, std::string_view text) {
    ReplacedFile replaced(file);
    replaced.write(std::as_bytes(std::span(text)));
    replaced.commit();
}

} // namespace entrodraft::launch
