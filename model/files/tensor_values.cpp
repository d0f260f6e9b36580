#include "model/files/tensor_values.h"

#include <algorithm>

namespace entrodraft::model {

void read_floats(const TensorView& tensor, dist::Slice range, float* out) {
    for (std::int64_t done = 0; done < range.size(); done += kMaxConverted) {
        const int count = static_cast<int>(std::min<std::int64_t>(kMaxConverted, range.size() - done));
        convert_from<Float32Format>(tensor, range.begin + done, 1, count, reinterpret_cast<std::byte*>(out + done));
    }
}

} // namespace entrodraft::model
