// The kernels for any processor the compiler was told of.
#define KERNEL_SET portable
#define KERNEL_SET_NAME "portable"
#include "model/cpu/kernels.inl"
