// Products with codes whose groups of inputs have their own scales: linear.cuh. This is a separate file, because these
// products take as long to compile as all others.
#include "model/gpu/linear.cuh"

namespace entrodraft::model::gpu {

namespace {

// Calls f with numbers of the activations' type and of the codes'.
template <typename Function> void with_groups(const Linear& call, const Function& f) {
    with_codes(call.form, [&]<typename W>(W w) {
        if constexpr (Chunk<W>::kHasGroups) call.type == NumberType::bfloat16 ? f(__nv_bfloat16{}, w) : f(__half{}, w);
    });
}

} // namespace

void linear_groups(void* stream, const Linear& call) {
    with_groups(call, [&]<typename T, typename W>(T, W) { multiply_tiles<T, W>(stream, call); });
}

void expert_linear_groups(void* stream, const ExpertLinear& call) {
    with_groups(call, [&]<typename T, typename W>(T, W) { multiply_expert_tiles<T, W>(stream, call); });
}

} // namespace entrodraft::model::gpu
