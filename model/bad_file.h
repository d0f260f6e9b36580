// What reading a file that is not as it should be throws: the message names file, place and reason.
#pragma once

#include <stdexcept>

namespace entrodraft::model {

class BadFile final : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

} // namespace entrodraft::model
