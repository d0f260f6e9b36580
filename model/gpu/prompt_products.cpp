// Chooses algorithms of cuBLASLt for which a row's exact result depends on no other row: see prompt_products.h.
//
// cuBLASLt stores matrices column by column. So it computes Y = transpose(W) X, with Y = y^T [n][rows],
// W = w^T [stride][n] and X = x^T [stride][rows].
#include "model/gpu/prompt_products.h"

#include "dist/rank/error.h"
#include "model/files/half.h"

#include <cublasLt.h>

#include <array>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <vector>

namespace entrodraft::model::gpu {

namespace {

constexpr int kMaxAlgorithms = 16; // number that is tried for a shape
// Device memory besides the operands. Hopper's algorithms for wide matrices want some, though they do not split k.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
constexpr int kRolls[] = {8, 16, 72}; // rows: part of a tile, a whole tile, a tile and a part of one

void check(cublasStatus_t status, const char* call) {
    if (status != CUBLAS_STATUS_SUCCESS)
        throw dist::Error(fmt::format("{} failed: {}", call, cublasLtGetStatusString(status)));
}

cudaDataType_t data_type(NumberType type) {
    switch (type) {
    case NumberType::float32:
        return CUDA_R_32F;
    case NumberType::bfloat16:
        return CUDA_R_16BF;
    case NumberType::float16:
        return CUDA_R_16F;
    }
    throw std::invalid_argument("a number type that cuBLASLt does not know");
}

const char* name_of(NumberType type) {
    return type == NumberType::float32 ? "float32" : type == NumberType::bfloat16 ? "bfloat16" : "float16";
}

// Descriptions of a product's operands, as cuBLASLt takes them.
struct Operands {
    explicit Operands(const Linear& call) {
        const auto layout = [](cublasLtMatrixLayoutOpaque_t& to, NumberType type, int numbers, int lines, int stride) {
            check(cublasLtMatrixLayoutInit(&to, data_type(type), static_cast<std::uint64_t>(numbers),
                                           static_cast<std::uint64_t>(lines), stride),
                  "cublasLtMatrixLayoutInit");
        };
        // Products of float32 must not use TF32 or bfloat16.
        const auto compute = call.type == NumberType::float32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
        check(cublasLtMatmulDescInit(&product, compute, CUDA_R_32F), "cublasLtMatmulDescInit");
        const cublasOperation_t transposed = CUBLAS_OP_T;
        check(cublasLtMatmulDescSetAttribute(&product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
              "cublasLtMatmulDescSetAttribute");
        layout(w, call.type, call.stride, call.n, call.stride);
        layout(x, call.type, call.stride, call.rows, call.stride);
        layout(y, call.y_type, call.n, call.rows, call.y_stride);
    }

    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t w, x, y;
};

// Returns the algorithms that do not split k: at most kMaxAlgorithms, the fastest first.
std::vector<cublasLtMatmulAlgo_t> algorithms_of(cublasLtHandle_t library, Operands& operands) {
    cublasLtMatmulPreferenceOpaque_t preference;
    check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
        check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value),
              "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspaceBytes});
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
    std::array<cublasLtMatmulHeuristicResult_t, kMaxAlgorithms> results;
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(library, &operands.product, &operands.w, &operands.x, &operands.y, &operands.y,
                                       &preference, kMaxAlgorithms, results.data(), &count);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "cublasLtMatmulAlgoGetHeuristic");
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < count; ++i) {
        const cublasLtMatmulHeuristicResult_t& result = results[i];
        std::int32_t splits = 0;
        check(cublasLtMatmulAlgoConfigGetAttribute(&result.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                                   sizeof splits, nullptr),
              "cublasLtMatmulAlgoConfigGetAttribute");
        if (result.state == CUBLAS_STATUS_SUCCESS && splits <= 1) algorithms.push_back(result.algo);
    }
    return algorithms;
}

// Returns numbers between -1 and 1, the same in every run.
std::vector<std::byte> numbers_of(NumberType type, std::size_t count) {
    std::vector<std::byte> bytes(count * bytes_of(type));
    std::uint32_t state = 1;
    for (std::size_t i = 0; i < count; ++i) {
        state = state * 1664525 + 1013904223;
        const float number = static_cast<float>(state >> 8) * 0x1p-23F - 1;
        const std::uint16_t half = type == NumberType::bfloat16 ? to_bfloat16(number) : to_float16(number);
        if (type == NumberType::float32)
            std::memcpy(&bytes[i * sizeof number], &number, sizeof number);
        else
            std::memcpy(&bytes[i * sizeof half], &half, sizeof half);
    }
    return bytes;
}

} // namespace

struct PromptProducts::Impl {
    struct Destroy {
        void operator()(cublasLtHandle_t library) const { cublasLtDestroy(library); }
    };

    // The properties for which an algorithm is fixed.
    struct Shape {
        explicit Shape(const Linear& call)
            : n(call.n), stride(call.stride), y_stride(call.y_stride), type(call.type), y_type(call.y_type) {}
        auto operator<=>(const Shape&) const = default;
        int n, stride, y_stride;
        NumberType type, y_type;
    };

    int hidden_size;
    const Stream& stream;
    double timeout_seconds;
    std::unique_ptr<cublasLtContext, Destroy> library;
    DeviceBytes workspace;
    std::map<Shape, std::optional<cublasLtMatmulAlgo_t>> algorithms; // none: all algorithms change bits

    void enqueue(const Linear& call, const cublasLtMatmulAlgo_t& algorithm) const;
    std::optional<cublasLtMatmulAlgo_t> find(Linear call) const;
};

// y = x w^T. Computes y += x w^T if the call adds, or if it has a bias, which y holds already.
void PromptProducts::Impl::enqueue(const Linear& call, const cublasLtMatmulAlgo_t& algorithm) const {
    Operands operands(call);
    const float alpha = 1, beta = call.add || call.bias != nullptr ? 1 : 0;
    check(cublasLtMatmul(library.get(), &operands.product, &alpha, call.w, &operands.w, call.x, &operands.x, &beta,
                         call.y, &operands.y, call.y, &operands.y, &algorithm, workspace.data(), workspace.size(),
                         static_cast<cudaStream_t>(stream.handle())),
          "cublasLtMatmul");
}

// Returns the fastest algorithm that gives each row the same bits at any place and for any number of rows.
std::optional<cublasLtMatmulAlgo_t> PromptProducts::Impl::find(Linear call) const {
    const std::size_t x_row = static_cast<std::size_t>(call.stride) * bytes_of(call.type);
    const std::size_t y_row = static_cast<std::size_t>(call.y_stride) * bytes_of(call.y_type);
    const std::size_t n_bytes = static_cast<std::size_t>(call.n) * bytes_of(call.y_type);
    const DeviceBytes x_twice(2 * kMaxPromptRows * x_row), y(kMaxPromptRows * y_row); // from any row on x, rolled
    const std::vector<std::byte> numbers =
        numbers_of(call.type, kMaxPromptRows * static_cast<std::size_t>(call.stride));
    for (const std::size_t first : {std::size_t{0}, numbers.size()})
        copy(stream, x_twice.data() + first, numbers.data(), numbers.size());
    call.bias = nullptr;
    call.y = y.data();
    std::vector<std::byte> expected(y.size()), got(y.size());
    const auto multiply = [&](const cublasLtMatmulAlgo_t& algorithm, int rolled_by, int rows,
                              std::vector<std::byte>& to) {
        call.x = x_twice.data() + static_cast<std::size_t>(kMaxPromptRows - rolled_by) * x_row;
        call.rows = rows;
        Operands operands(call);
        cublasLtMatmulHeuristicResult_t result;
        if (cublasLtMatmulAlgoCheck(library.get(), &operands.product, &operands.w, &operands.x, &operands.y,
                                    &operands.y, &algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
            result.workspaceSize > workspace.size())
            return false;
        enqueue(call, algorithm);
        copy(stream, to.data(), y.data(), static_cast<std::size_t>(rows) * y_row);
        stream.wait(timeout_seconds);
        return true;
    };
    const auto same = [&](int rows, int rolled_by) {
        for (int row = 0; row < rows; ++row) {
            const int at = (row + rolled_by) % kMaxPromptRows;
            if (std::memcmp(&got[static_cast<std::size_t>(at) * y_row],
                            &expected[static_cast<std::size_t>(row) * y_row], n_bytes) != 0)
                return false;
        }
        return true;
    };
    call.rows = kMaxPromptRows;
    Operands operands(call);
    for (const cublasLtMatmulAlgo_t& algorithm : algorithms_of(library.get(), operands)) {
        bool is_invariant = multiply(algorithm, 0, kMaxPromptRows, expected);
        for (const int rolled_by : kRolls)
            is_invariant =
                is_invariant && multiply(algorithm, rolled_by, kMaxPromptRows, got) && same(kMaxPromptRows, rolled_by);
        for (int rows = kMaxPromptRows / 2; rows >= kMinRows; rows /= 2)
            is_invariant = is_invariant && multiply(algorithm, 0, rows, got) && same(rows, 0);
        if (is_invariant) return algorithm;
    }
    return std::nullopt;
}

PromptProducts::PromptProducts(const DeviceWeights& weights, int hidden_size, const Stream& stream,
                               double timeout_seconds)
    : impl_(new Impl{hidden_size, stream, timeout_seconds, nullptr, DeviceBytes(kWorkspaceBytes), {}}) {
    cublasLtHandle_t made = nullptr;
    check(cublasLtCreate(&made), "cublasLtCreate");
    impl_->library.reset(made);
    add(weights);
}
PromptProducts::~PromptProducts() = default;

void PromptProducts::add(const DeviceWeights& weights) {
    const auto fix = [&](const DeviceMatrix& matrix, NumberType y_type, int y_stride) {
        if (matrix.n == 0 || matrix.k == 0) return;
        Linear call = matrix.product(weights.type);
        call.y_type = y_type;
        call.y_stride = y_stride;
        const auto [found, is_new] = impl_->algorithms.try_emplace(Impl::Shape(call));
        if (is_new) found->second = impl_->find(call);
    };
    const auto fix_column = [&](const DeviceMatrix& matrix) { fix(matrix, weights.type, aligned(matrix.n)); };
    const auto fix_row = [&](const DeviceMatrix& matrix) { fix(matrix, NumberType::float32, impl_->hidden_size); };
    fix_row(weights.outer[Role::project_in]);
    for (const DeviceTensors& layer : weights.layers) {
        fix_column(layer[Role::qkv]);
        fix_column(layer[Role::query_up]);
        fix_column(layer[Role::up]);
        fix_row(layer[Role::output]);
        fix_row(layer[Role::down]);
        fix_column(layer[Role::cross_query]);
        fix_column(layer[Role::cross_key_value]);
        fix_row(layer[Role::cross_output]);
    }
}

void PromptProducts::multiply(const Linear& call) const {
    const auto found = impl_->algorithms.find(Impl::Shape(call));
    if (found == impl_->algorithms.end() || !found->second) return linear(impl_->stream.handle(), call);
    if (call.bias != nullptr) start_with_bias(impl_->stream.handle(), call);
    impl_->enqueue(call, *found->second);
}

std::string PromptProducts::note() const {
    std::string shapes;
    for (const auto& [shape, algorithm] : impl_->algorithms)
        if (!algorithm)
            shapes += fmt::format("{}{} x {} to {}", shapes.empty() ? "" : ", ", shape.n, shape.stride,
                                  name_of(shape.y_type));
    if (shapes.empty()) return "";
    return fmt::format("cuBLASLt has no algorithm for matrices of {} whose rows keep their bits wherever they lie: "
                       "prompts are multiplied by our own kernels, several times slower",
                       shapes);
}

} // namespace entrodraft::model::gpu
