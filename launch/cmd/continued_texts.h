// Stores texts that the target has continued. Each is written to a file when it ends. So a run that was killed can be
// resumed, and does not make these texts again.
//
// The file has JSON lines: the first has the settings that determine the texts, and each further line has a text with
// its number. distill calls this on the coordinator.
#pragma once

#include "launch/io/json_line.h"
#include "launch/io/results.h"

#include <map>
#include <string>
#include <vector>

namespace entrodraft::launch {

class ContinuedTexts {
  public:
    // Begins the file, or reads it if it exists; cuts off a torn last line. Throws BadOption if the file was begun with
    // other `settings`, and std::runtime_error that names file and line.
    ContinuedTexts(const std::string& file, const Json& settings, std::size_t n_texts);

    // Returns the texts that were in the file, by their number.
    const std::map<std::size_t, std::vector<spec::TokenId>>& found() const { return found_; }
    // Throws std::runtime_error.
    void add(std::size_t number, const std::vector<spec::TokenId>& tokens);

  private:
    void read(const Json& settings, std::size_t n_texts);

    std::string name_;
    ResultWriter file_;
    std::map<std::size_t, std::vector<spec::TokenId>> found_;
};

} // namespace entrodraft::launch
