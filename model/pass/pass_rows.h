// The largest number of rows of a pass.
#pragma once

namespace entrodraft::model {

inline constexpr int kMaxRows = 128; // of a pass that is not a chunk of a prompt

} // namespace entrodraft::model
