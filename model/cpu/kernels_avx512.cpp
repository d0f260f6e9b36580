// The kernels for AVX-512 (F, BW, DQ, VL).
#define KERNEL_SET avx512
#define KERNEL_SET_NAME "avx512"
#include "model/cpu/kernels.inl"
