// Says whether every run of the same command with the same seed gives the same text. Pure.
#pragma once

#include "launch/cli/options.h"

#include <string>

namespace entrodraft::launch {

// Says in one line why the text of these options may differ from run to run, with the remedy. Empty: the same command
// repeats it. This holds at the options' temperature; an input line may ask for another.
std::string why_text_varies(const GenerateOptions& options);

} // namespace entrodraft::launch
