// See generated_values.h.
#include "model/files/generated_values.h"

#include <algorithm>

namespace entrodraft::model {

void read_generated(const GeneratedValues& values, std::int64_t first, std::int64_t stride, int count, float* out) {
    if (!values.is_random) {
        std::fill_n(out, count, values.value);
        return;
    }
    auto place = static_cast<std::uint64_t>(first);
    if (stride != 1) {
        for (int i = 0; i < count; ++i, place += static_cast<std::uint64_t>(stride))
            out[i] = random_weight(random_weight_index(values.key, place));
        return;
    }
    for (int i = 0; i < count;) { // a word serves eight values
        std::uint64_t word = random_word(values.key, place / 8) >> (place % 8 * 8);
        const int n = std::min(count - i, static_cast<int>(8 - place % 8));
        for (int j = 0; j < n; ++j, word >>= 8)
            out[i + j] = random_weight(static_cast<int>(word & 255));
        i += n;
        place += static_cast<std::uint64_t>(n);
    }
}

} // namespace entrodraft::model
