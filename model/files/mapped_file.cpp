// See mapped_file.h.
#include "model/files/mapped_file.h"

#include "model/files/bad_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fmt/format.h>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

namespace entrodraft::model {
namespace {

constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/";

FileIdentity identity_of(const struct stat& about) {
    const auto ns = [](const timespec& time) { return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; };
    return {about.st_dev, about.st_ino, static_cast<std::uint64_t>(about.st_size), ns(about.st_mtim),
            ns(about.st_ctim)};
}

// ---- all mapped files ----

enum class PlaceState : std::uint8_t { free, busy, ready };
struct MappedPlace {
    std::atomic<PlaceState> state = PlaceState::free;
    const MappedFile* file = nullptr;
    const char* name = nullptr;
    std::uintptr_t begin = 0, end = 0;
};
static_assert(std::atomic<PlaceState>::is_always_lock_free, "it is read in signal handlers");

// Signal handlers read it.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::array<MappedPlace, MappedFile::kMaxMapped> mapped_places;

std::size_t take_place(const MappedFile& file) {
    for (std::size_t i = 0; i < mapped_places.size(); ++i) {
        PlaceState state = PlaceState::free;
        if (!mapped_places[i].state.compare_exchange_strong(state, PlaceState::busy)) continue;
        mapped_places[i].file = &file;
        mapped_places[i].name = file.name().c_str();
        mapped_places[i].begin = reinterpret_cast<std::uintptr_t>(file.bytes().data());
        mapped_places[i].end = mapped_places[i].begin + file.bytes().size();
        mapped_places[i].state = PlaceState::ready;
        return i;
    }
    throw BadFile(fmt::format("{}: more than {} files are mapped at once", file.name(), mapped_places.size()));
}

// These are names of files, because a file may be mapped several times.
struct ChangedFiles {
    std::mutex mutex;
    std::set<std::string> no_longer_mapped;
    std::set<std::string> told;
};
ChangedFiles& changed_files() {
    static ChangedFiles made;
    return made;
}

} // namespace

const char* mapped_file_at(const void* address) {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (const MappedPlace& place : mapped_places)
        if (place.state == PlaceState::ready && place.begin <= at && at < place.end) return place.name;
    return nullptr;
}

std::vector<std::string> take_changed_files() {
    ChangedFiles& files = changed_files();
    const std::lock_guard lock(files.mutex);
    std::set<std::string> names = std::exchange(files.no_longer_mapped, {});
    for (const MappedPlace& place : mapped_places)
        if (place.state == PlaceState::ready && place.file->is_changed()) names.emplace(place.name);
    std::erase_if(names, [&](const std::string& name) { return !files.told.insert(name).second; });
    return {names.begin(), names.end()};
}

MappedFile::MappedFile(const std::filesystem::path& path, std::size_t min_bytes, std::string_view format)
    : name_(path.string()) {
    // Opening a pipe that nobody writes to would wait for ever without O_NONBLOCK.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        const std::string reason = system_reason();
        std::error_code unused; // if set, it is not a link
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
    try {
        place_ = take_place(*this);
    } catch (...) {
        ::munmap(data_, size_);
        throw;
    }
    if (text().starts_with(kLfsPointer)) {
        unmap();
        throw BadFile(name_ + ": this is a Git LFS pointer, not the file; fetch the file with git lfs pull");
    }
}

bool MappedFile::is_changed() const {
    struct stat about {};
    if (::stat(name_.c_str(), &about) != 0) return false;
    const FileIdentity now = identity_of(about);
    return now.device == identity_.device && now.inode == identity_.inode &&
           (now.bytes != identity_.bytes || now.modified_ns != identity_.modified_ns);
}

void MappedFile::unmap() {
    mapped_places[place_].state = PlaceState::free;
    ::munmap(data_, size_);
}

MappedFile::~MappedFile() {
    if (is_changed()) {
        const std::lock_guard lock(changed_files().mutex);
        changed_files().no_longer_mapped.insert(name_);
    }
    unmap();
}

} // namespace entrodraft::model
