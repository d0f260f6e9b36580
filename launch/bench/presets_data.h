// The text of presets.json, compiled in. Private to presets.cpp.
#pragma once

namespace entrodraft::launch {

extern const char* const kPresetsJson;

} // namespace entrodraft::launch
