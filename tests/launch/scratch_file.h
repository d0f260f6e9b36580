// A file for one test, removed at its end.
#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>

namespace test {

class ScratchFile {
  public:
    explicit ScratchFile(const std::string& text) {
        static std::atomic<int> count{0};
        path_ = std::filesystem::temp_directory_path() /
                ("entrodraft-" + std::to_string(getpid()) + "-" + std::to_string(count++));
        std::ofstream(path_, std::ios::binary) << text;
    }
    ~ScratchFile() {
        std::error_code ignored;
        std::filesystem::remove(path_, ignored);
        std::filesystem::remove(path_.string() + ".settings", ignored); // where it was an output
    }
    ScratchFile(const ScratchFile&) = delete;
    ScratchFile& operator=(const ScratchFile&) = delete;

    std::string path() const { return path_.string(); }
    std::string text() const {
        std::ostringstream text;
        text << std::ifstream(path_, std::ios::binary).rdbuf();
        return text.str();
    }

  private:
    std::filesystem::path path_;
};

} // namespace test
