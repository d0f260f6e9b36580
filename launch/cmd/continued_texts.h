// Texts that the target has continued, each written to a file as it ends, so that a run that is killed goes on behind
// them.
//
// JSON lines: what the texts are made by, then each text with its number. Called by distill, on the coordinator.
#pragma once

#include "launch/io/json_line.h"
#include "launch/io/results.h"
#include "spec/protocol/request.h"

#include <map>
#include <string>
#include <vector>

namespace entrodraft::launch {

class ContinuedTexts {
  public:
    // Begins the file, or reads it where it is there; a torn last line is cut off. Throws BadOption where it was begun
    // with other `settings`, std::runtime_error naming file and line.
    ContinuedTexts(const std::string& file, const Json& settings, std::size_t n_texts);

    // Those that were in the file, by their number.
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
