#include "launch/cmd/recording_file.h"

#include "launch/failure.h"

#include <filesystem>

namespace entrodraft::launch {

RecordingFile::RecordingFile(const std::string& file, bool resume)
    : writer_(file, resume ? Existing::append : Existing::refuse) {
    if (!resume) return;
    if (!std::filesystem::is_regular_file(file))
        throw BadOption("--resume needs --output to be a plain file, and " + file + " is not");
    existing_ = spec::read_recording(file, true);
    writer_.cut_to(existing_.whole_bytes);
}

} // namespace entrodraft::launch
