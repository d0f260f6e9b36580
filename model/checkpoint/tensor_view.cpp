// See tensor_view.h.
#include "model/checkpoint/tensor_view.h"

#include "model/checkpoint/bad_file.h"

#include <utility>

namespace entrodraft::model {
namespace {

// In the order of the format's source.
constexpr std::pair<std::string_view, std::size_t> kBitsOfType[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

} // namespace

DiskType disk_type(std::string_view dtype) {
    if (dtype == "F32") return DiskType::float32;
    if (dtype == "F16") return DiskType::float16;
    if (dtype == "BF16") return DiskType::bfloat16;
    return DiskType::other;
}

std::size_t element_bits(std::string_view dtype) {
    for (const auto& [name, bits] : kBitsOfType) {
        if (name == dtype) return bits;
    }
    throw BadFile("unknown dtype " + in_quotes(dtype));
}

} // namespace entrodraft::model
