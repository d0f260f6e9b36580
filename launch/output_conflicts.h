// No command writes over what it reads: all files that the options name, looked at before any of them is opened.
//
// Called where a command's options are read.
#pragma once

#include "launch/cli/option_set.h"

#include <vector>

namespace entrodraft::launch {

// Throws BadOption where a file that is to be written is read as well, under any name, as stdin or as a part of a
// model, or is written twice. Pipes and devices may be both. Local.
void refuse_output_conflicts(const ParsedOptions& given, const std::vector<OptionGroup>& groups);

} // namespace entrodraft::launch
