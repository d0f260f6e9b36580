// A matrix and a norm in the memory of a GPU, in the form that the kernels of this folder read. Matrices are
// [outputs][inputs], in one number type or as codes of 8 or 4 bits. Their rows are padded to kLinearAlign numbers with
// zeros. Vectors are float32. Called by gpu/uploader, which fills them, and by gpu/ops.
#pragma once

#include "model/gpu/kernels.h"
#include "model/gpu/memory.h"

#include <cstdint>
#include <vector>

namespace entrodraft::model::gpu {

struct DeviceMatrix {
    DeviceBytes numbers;
    int n = 0, k = 0, stride = 0;
    DeviceArray<float> bias; // [n] or empty
    CodeForm form;
    DeviceBytes scales;        // of codes, per row or per group, as Linear has them
    DeviceArray<float> values; // [16] or empty
    // [k] or empty: column i is multiplied with input order[i]. This is GPTQ's act-order, which groups inputs in its
    // own order.
    DeviceArray<std::int32_t> order;
    // At most one: further outputs that the file holds in another form (gates of linear attention that are not codes).
    std::vector<DeviceMatrix> last;

    int outputs() const { return last.empty() ? n : n + last.front().n; }
    // Returns the product of the n outputs with activations of this type. The caller sets rows, x and y.
    Linear product(NumberType type_of_x) const {
        Linear call;
        call.type = type_of_x;
        call.w = numbers.data();
        call.k = k;
        call.stride = stride;
        call.n = n;
        call.bias = bias.data();
        call.form = form;
        if (form.group == 0) call.scales = reinterpret_cast<const float*>(scales.data());
        call.group_scales = scales.data();
        call.values = values.data();
        return call;
    }
};

struct DeviceNorm {
    DeviceArray<float> weight, bias; // empty: without norm, without bias
    Norm kind = Norm::rms;
    float epsilon = 0;
};

} // namespace entrodraft::model::gpu
