// CUDA devices and their memory: see device.h.
#include "dist/rank/device.h"

#include "dist/rank/check.h"

#include <cuda_runtime.h>

#include <cstring>
#include <utility>

namespace entrodraft::dist {

int device_count() {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
    cudaGetLastError(); // a missing driver or device must not become the next call's error
    return 0;
}

DeviceFacts device_facts(int device) {
    cudaDeviceProp properties = {};
    check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    DeviceFacts facts;
    facts.name = properties.name;
    static_assert(sizeof properties.uuid == sizeof facts.uuid);
    std::memcpy(facts.uuid.data(), &properties.uuid, sizeof facts.uuid);
    char address[32] = {};
    check_cuda(cudaDeviceGetPCIBusId(address, sizeof address, device), "cudaDeviceGetPCIBusId");
    facts.pci_address = address;
    return facts;
}

PeerLink peer_link(int from, int to) {
    int access = 0, atomics = 0;
    check_cuda(cudaDeviceCanAccessPeer(&access, from, to), "cudaDeviceCanAccessPeer");
    check_cuda(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to),
               "cudaDeviceGetP2PAttribute");
    return {access != 0, atomics != 0};
}

void use_device(int device) {
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
}

DeviceBuffer::DeviceBuffer(int device, std::size_t bytes) : bytes_(bytes) {
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
    check_cuda(cudaMalloc(&data_, bytes), "cudaMalloc");
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

DeviceBuffer::~DeviceBuffer() {
    if (data_ != nullptr) cudaFree(data_);
}

} // namespace entrodraft::dist
