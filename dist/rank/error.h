// Errors of failed collectives and launcher calls. Each has a message for people, with rank and place.
#pragma once

#include <stdexcept>

namespace entrodraft::dist {

class Error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// A collective did not end before its deadline: some rank is dead, stopped or stuck.
class Timeout final : public Error {
  public:
    using Error::Error;
};

} // namespace entrodraft::dist
