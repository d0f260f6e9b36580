// The GPUs of this machine: only what collectives and their tests need. Only in builds with ENTRODRAFT_CUDA.
#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace entrodraft::dist {

// Returns the number of CUDA devices that this process can use: 0 without a driver or a device. It is the first CUDA
// call of a process that has not made any.
int device_count();

struct DeviceFacts {
    std::string name;               // "NVIDIA H200"
    std::array<std::byte, 16> uuid; // of this one GPU, whatever number a process gives it
    std::string pci_address;        // "0000:41:00.0"
};
// Throws Error.
DeviceFacts device_facts(int device);
// The link from a device to another one of this process.
struct PeerLink {
    bool has_access = false;  // the device reads and writes the other's memory; else copies go through the host's
    bool has_atomics = false; // native atomics, which NVLink has and PCIe has not
};
// Throws Error.
PeerLink peer_link(int from, int to);
// Later CUDA calls of this thread use this device. Throws Error.
void use_device(int device);

// Memory on one device, freed with the object. Move only.
class DeviceBuffer {
  public:
    // Throws Error when the device does not have enough memory.
    DeviceBuffer(int device, std::size_t bytes);
    DeviceBuffer(DeviceBuffer&& other) noexcept;
    DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
    ~DeviceBuffer();

    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

  private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

} // namespace entrodraft::dist
