#include "entrodraft/launch/study/recording_file.h"

#include "entrodraft/launch/failure.h"

#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace entrodraft::launch {

RecordingFile::RecordingFile(const std::string& file, bool resume)
    : writer_(file, resume ? Existing::append : Existing::refuse) {
    if (!resume) return;
    if (!std::filesystem::is_regular_file(file))
        throw BadOption("--resume needs --output to be a plain file, and " + file + " is not");
    existing_ = spec::read_recording(file, true);
    std::error_code error;
    std::filesystem::resize_file(file, existing_.whole_bytes, error);
    if (error) throw std::runtime_error(file + ": the torn last block cannot be cut off: " + error.message());
}

} // namespace entrodraft::launch
