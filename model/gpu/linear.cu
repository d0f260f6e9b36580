// Products with numbers, and with codes that have one scale per output: linear.cuh. For float32, there is one warp per
// output, with lanes along k.
#include "model/gpu/linear.cuh"

namespace entrodraft::model::gpu {

namespace {

constexpr int kFloatWarps = 4;
constexpr int kFloatRows = 8;

// Computes output n's sums on all lanes of a warp; lane l adds k = 4 l, 4 l + 128, ... in order.
template <typename RowOf>
__device__ void multiply_row(const Part& part, const RowOf& row_of, int n, float (&sums)[kFloatRows]) {
    const Linear& call = part.call;
    const auto stride = static_cast<std::size_t>(call.stride);
    const float* w = static_cast<const float*>(call.w) + static_cast<std::size_t>(n) * stride;
    for (int k = 4 * lane_of_thread(); k < call.stride; k += 4 * kWarp) {
        const float4 of_w = *reinterpret_cast<const float4*>(w + k);
        for (int i = 0; i < kFloatRows && part.first_row + i < call.rows; ++i) {
            const float* x =
                static_cast<const float*>(call.x) + static_cast<std::size_t>(row_of(part.first_row + i)) * stride;
            const float4 of_x = *reinterpret_cast<const float4*>(x + k);
            sums[i] += of_w.x * of_x.x + of_w.y * of_x.y + of_w.z * of_x.z + of_w.w * of_x.w;
        }
    }
    for (float& sum : sums)
        sum = warp_sum(sum);
}

// One warp per output, or per gate and its up.
template <typename RowOf> __device__ void multiply_float_rows(const Part& part, const RowOf& row_of) {
    const Linear& call = part.call;
    const bool is_gate = call.epilogue == Epilogue::gate;
    const int i_output = static_cast<int>(blockIdx.x) * kFloatWarps + warp_of_thread();
    const int n = is_gate ? gate_row(i_output) : i_output;
    if (n >= call.n) return; // a whole warp
    float sums[kFloatRows] = {}, ups[kFloatRows] = {};
    multiply_row(part, row_of, n, sums);
    if (is_gate) multiply_row(part, row_of, n + kGateGroup, ups);
    for (int i = 0; i < kFloatRows && part.first_row + i < call.rows; ++i)
        if (lane_of_thread() == 0) finish_product(call, part.first_row + i, n, sums[i], ups[i]);
}

__global__ void multiply_float(Part part) {
    begin_kernel();
    multiply_float_rows(part, InPlace{});
}

__global__ void multiply_float_experts(ExpertLinear call) {
    begin_kernel();
    const int expert = call.live[blockIdx.y];
    if (expert < 0) return; // the whole block
    const Linear mine = of_expert<float>(call, expert);
    for (int first = call.begin[expert]; first < mine.rows; first += kFloatRows)
        multiply_float_rows(Part{mine, first}, Listed{call.from_rows});
}

// Calls f with a number of the weights' type, T itself or codes; linear_groups.cu has codes with groups.
template <typename T, typename Function> void with_weights(const Linear& call, const Function& f) {
    if (call.form.code == Code::none) return f(T{});
    with_codes(call.form, [&]<typename W>(W w) {
        if constexpr (!Chunk<W>::kHasGroups) f(w);
    });
}

void check_types(const Linear& call) {
    if (call.form.code != Code::none && call.type == NumberType::float32)
        throw std::invalid_argument("weights of 8 and 4 bits take activations of 16 bits");
}

} // namespace

std::size_t bytes_of(NumberType type) {
    return type == NumberType::float32 ? sizeof(float) : sizeof(std::uint16_t);
}

void linear(void* stream, const Linear& call) {
    check_types(call);
    if (call.form.group > 0) return linear_groups(stream, call);
    switch (call.type) {
    case NumberType::float32:
        for (int first = 0; first < call.rows; first += kFloatRows)
            launch(stream, {blocks_for(static_cast<std::size_t>(call.n), kFloatWarps), kFloatWarps * kWarp},
                   multiply_float, Part{call, first});
        return;
    case NumberType::bfloat16:
        return with_weights<__nv_bfloat16>(call,
                                           [&]<typename W>(W) { multiply_tiles<__nv_bfloat16, W>(stream, call); });
    case NumberType::float16:
        return with_weights<__half>(call, [&]<typename W>(W) { multiply_tiles<__half, W>(stream, call); });
    }
}

void expert_linear(void* stream, const ExpertLinear& call) {
    check_types(call);
    if (call.form.group > 0) return expert_linear_groups(stream, call);
    switch (call.type) {
    case NumberType::float32:
        launch(stream,
               {dim3(blocks_for(static_cast<std::size_t>(call.n), kFloatWarps), most_live(call)), kFloatWarps * kWarp},
               multiply_float_experts, call);
        return;
    case NumberType::bfloat16:
        return with_weights<__nv_bfloat16>(
            call, [&]<typename W>(W) { multiply_expert_tiles<__nv_bfloat16, W>(stream, call); });
    case NumberType::float16:
        return with_weights<__half>(call, [&]<typename W>(W) { multiply_expert_tiles<__half, W>(stream, call); });
    }
}

} // namespace entrodraft::model::gpu
