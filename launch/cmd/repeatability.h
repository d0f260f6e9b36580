// Whether a seed repeats a text in every run of the same command. Pure.
#pragma once

#include "launch/cli/options.h"

#include <string>

namespace entrodraft::launch {

// Why the text of these options may differ from run to run, with the remedy, in one line. Empty: the same command
// repeats it. Texts at the temperature of the options; an input line may ask for another.
std::string why_text_varies(const GenerateOptions& options);

} // namespace entrodraft::launch
