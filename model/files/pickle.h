// Reads the pickle of a state dict, with a machine too small to run code. It knows the opcodes of protocol 2 that
// torch.save writes for dicts of tensors. It calls only OrderedDict and torch's two functions that describe a tensor,
// and refuses every other opcode and name. It reads neither files nor the tensors' data. Called by torch_file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model {

constexpr std::size_t kMaxPickleBytes = 64u << 20;
constexpr std::size_t kMaxPickleValues = 2u << 20; // some 65,000 tensors
constexpr std::size_t kMaxTensorDims = 8;

// Elements that tensors are views of; the archive holds them as `key`. The texts live as long as the pickle.
struct PickledStorage {
    std::string_view key;
    std::string_view dtype; // as safetensors names it
    std::uint64_t n_elements = 0;
};

struct PickledTensor {
    std::string name;
    PickledStorage storage;
    std::uint64_t offset = 0; // elements into the storage
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> strides; // in elements, one per dimension
};

// Returns the tensors of a dict of tensors, in its order. Their names are distinct valid UTF-8 without NUL. Does not
// check whether tensors fit their storages. Linear in the pickle's length. Throws BadFile, beginning with `what`.
std::vector<PickledTensor> read_pickled_tensors(std::span<const std::byte> pickle, const std::string& what);

} // namespace entrodraft::model
