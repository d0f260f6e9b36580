#include "tests/cuda_stand_in/cublasLt.h"

#include "tests/cuda_stand_in/cuda_bf16.h"
#include "tests/cuda_stand_in/cuda_fp16.h"

#include <atomic>
#include <vector>

struct cublasLtContext {};

namespace {

constexpr int kAlgorithms = 2;
constexpr std::size_t kLanes = 16; // outputs at once
std::atomic<int> n_place_dependent{0};

float number(const void* from, cudaDataType_t type, std::size_t at) {
    switch (type) {
    case CUDA_R_32F:
        return static_cast<const float*>(from)[at];
    case CUDA_R_16F:
        return __half2float(static_cast<const __half*>(from)[at]);
    case CUDA_R_16BF:
        return __bfloat162float(static_cast<const __nv_bfloat16*>(from)[at]);
    }
    return 0;
}

void store(void* to, cudaDataType_t type, std::size_t at, float value) {
    switch (type) {
    case CUDA_R_32F:
        static_cast<float*>(to)[at] = value;
        return;
    case CUDA_R_16F:
        static_cast<__half*>(to)[at] = __float2half_rn(value);
        return;
    case CUDA_R_16BF:
        static_cast<__nv_bfloat16*>(to)[at] = __float2bfloat16_rn(value);
        return;
    }
}

struct Product {
    const void *w, *x;
    void* y;
    cublasLtMatrixLayoutOpaque_t of_w, of_x, of_y;
    float beta;
    bool depends_on_place;

    void operator()() const {
        const std::size_t n = of_w.columns, rows = of_x.columns, ks = of_w.rows;
        std::vector<float> of_rows(rows * ks), lanes(ks * kLanes);
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t k = 0; k < ks; ++k)
                of_rows[r * ks + k] = number(x, of_x.type, r * static_cast<std::size_t>(of_x.stride) + k);
        for (std::size_t first = 0; first < n; first += kLanes) {
            const std::size_t count = n - first < kLanes ? n - first : kLanes;
            for (std::size_t i = 0; i < count; ++i)
                for (std::size_t k = 0; k < ks; ++k)
                    lanes[k * kLanes + i] =
                        number(w, of_w.type, (first + i) * static_cast<std::size_t>(of_w.stride) + k);
            for (std::size_t r = 0; r < rows; ++r) {
                const bool backwards = depends_on_place && r / 64 % 2 == 1;
                float sums[kLanes] = {};
                for (std::size_t step = 0; step < ks; ++step) {
                    const std::size_t k = backwards ? ks - 1 - step : step;
                    const float of_row = of_rows[r * ks + k];
                    for (std::size_t i = 0; i < kLanes; ++i)
                        sums[i] += of_row * lanes[k * kLanes + i];
                }
                for (std::size_t i = 0; i < count; ++i) {
                    const std::size_t at = r * static_cast<std::size_t>(of_y.stride) + first + i;
                    store(y, of_y.type, at, beta == 0 ? sums[i] : sums[i] + beta * number(y, of_y.type, at));
                }
            }
        }
    }
};

// Wide chunks take some, as on Hopper.
std::size_t workspace_of(std::uint64_t rows) {
    return rows >= 256 ? 4096 : 0;
}

bool is_known(const cublasLtMatmulDescOpaque_t& product, const cublasLtMatrixLayoutOpaque_t& w,
              const cublasLtMatrixLayoutOpaque_t& x, const cublasLtMatrixLayoutOpaque_t& y) {
    return product.operation_of_a == CUBLAS_OP_T && w.type == x.type && w.rows == x.rows && w.columns == y.rows &&
           x.columns == y.columns && (y.type == CUDA_R_32F || y.type == w.type);
}

} // namespace

namespace cuda_stand_in {
void set_place_dependent_algorithms(int count) {
    n_place_dependent = count;
}
} // namespace cuda_stand_in

const char* cublasLtGetStatusString(cublasStatus_t) {
    return "error";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    *handle = new cublasLtContext;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t product, cublasComputeType_t, cudaDataType_t scale) {
    product->operation_of_a = CUBLAS_OP_N;
    return scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
    if (attribute != CUBLASLT_MATMUL_DESC_TRANSA || bytes != sizeof(cublasOperation_t))
        return CUBLAS_STATUS_INVALID_VALUE;
    product->operation_of_a = *static_cast<const cublasOperation_t*>(value);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType_t type, std::uint64_t rows,
                                        std::uint64_t columns, std::int64_t stride) {
    *layout = {type, rows, columns, stride};
    return stride >= static_cast<std::int64_t>(rows) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t) {
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, std::size_t) {
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t, int max_count,
                                              cublasLtMatmulHeuristicResult_t* results, int* count) {
    *count = 0;
    if (!is_known(*product, *a, *b, *d)) return CUBLAS_STATUS_NOT_SUPPORTED;
    for (; *count < kAlgorithms && *count < max_count; ++*count)
        results[*count] = {{*count}, workspace_of(b->columns), CUBLAS_STATUS_SUCCESS};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
    if (!is_known(*product, *a, *b, *d)) return CUBLAS_STATUS_NOT_SUPPORTED;
    *result = {*algorithm, workspace_of(b->columns), CUBLAS_STATUS_SUCCESS};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t*, cublasLtMatmulAlgoConfigAttributes_t,
                                                    void* value, std::size_t bytes, std::size_t*) {
    if (bytes != sizeof(std::int32_t)) return CUBLAS_STATUS_INVALID_VALUE;
    *static_cast<std::int32_t*>(value) = 1;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t of_a, const void* b, cublasLtMatrixLayout_t of_b, const void* beta,
                              const void* c, cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t of_d,
                              const cublasLtMatmulAlgo_t* algorithm, void*, std::size_t workspace,
                              cudaStream_t stream) {
    if (!is_known(*product, *of_a, *of_b, *of_d) || c != d || *static_cast<const float*>(alpha) != 1 ||
        workspace < workspace_of(of_b->columns))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    cuda_stand_in::enqueue(stream, Product{a, b, d, *of_a, *of_b, *of_d, *static_cast<const float*>(beta),
                                           algorithm->number < n_place_dependent});
    return CUBLAS_STATUS_SUCCESS;
}
