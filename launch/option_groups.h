// Groups of options that several commands have. Private to the tables of options.
#pragma once

#include "entrodraft/launch/option_set.h"

namespace entrodraft::launch {

const OptionGroup& general_group();
const OptionGroup& bench_models_group();
const OptionGroup& sampling_group();
const OptionGroup& chat_group();

} // namespace entrodraft::launch
