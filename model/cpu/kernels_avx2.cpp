// The kernels for AVX2 with FMA and F16C.
#define KERNEL_SET avx2
#define KERNEL_SET_NAME "avx2"
#include "model/cpu/kernels.inl"
