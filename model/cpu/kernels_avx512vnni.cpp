// The kernels for AVX-512 (F, BW, DQ, VL) with VNNI: like those of avx512, but 8-bit weights are multiplied as whole
// numbers.
#define KERNEL_SET avx512vnni
#define KERNEL_SET_NAME "avx512vnni"
#include "model/cpu/kernels.inl"
