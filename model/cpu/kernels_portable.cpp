// The kernels for every processor of the compiler's default target.
#define KERNEL_SET portable
#define KERNEL_SET_NAME "portable"
#include "model/cpu/kernels.inl"
