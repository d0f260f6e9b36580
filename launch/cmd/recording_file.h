// The file that a recording goes to: block by block, each with one write, behind what an earlier run has left there.
//
// Called by record on the coordinator.
#pragma once

#include "launch/io/results.h"
#include "spec/replay/recording.h"

#include <string>

namespace entrodraft::launch {

class RecordingFile {
  public:
    // A file that holds something is refused (BadOption) unless it is to be resumed: then its whole blocks are read and
    // a torn one is cut off. Throws std::runtime_error naming file and reason. Local.
    RecordingFile(const std::string& file, bool resume);

    // What the file held already; its head is empty where it held nothing.
    const spec::Recording& existing() const { return existing_; }
    bool is_new() const { return existing_.whole_bytes == 0; }

    // Throw std::runtime_error. Local.
    void write(const spec::RecordingHead& head) { writer_.write_text(spec::pack(head)); }
    void write(const spec::RecordedLine& line) { writer_.write_text(spec::pack(line)); }

  private:
    ResultWriter writer_;
    spec::Recording existing_;
};

} // namespace entrodraft::launch
