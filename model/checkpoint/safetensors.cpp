// See safetensors.h.
#include "model/checkpoint/safetensors.h"

#include "model/checkpoint/bad_file.h"
#include "model/checkpoint/mapped_file.h"
#include "model/checkpoint/safetensors_header.h"

#include <fmt/format.h>
#include <string_view>
#include <utility>

namespace entrodraft::model {
namespace {

constexpr std::size_t kLengthBytes = 8; // of the header's length, before the header

constexpr std::uint64_t kZipMark = 0x04034b50; // the first four bytes of a zip archive

// Little-endian, whatever this machine is. Throws BadFile where the file cannot hold such a header.
std::size_t header_length(const MappedFile& file) {
    const auto bytes = file.bytes();
    std::uint64_t length = 0;
    for (std::size_t i = kLengthBytes; i-- > 0;)
        length = length << 8 | std::to_integer<std::uint64_t>(bytes[i]);
    if (length > bytes.size() - kLengthBytes && (length & 0xffffffff) == kZipMark) {
        throw BadFile(file.name() + ": a zip archive, as torch.save writes it, under a name of safetensors; rename it "
                                    "pytorch_model.bin");
    }
    if (length > kMaxSafetensorsHeaderBytes) {
        throw BadFile(
            fmt::format("{}: a header of {} bytes is over the format's limit of {}; is it a safetensors file?",
                        file.name(), length, kMaxSafetensorsHeaderBytes));
    }
    if (length > bytes.size() - kLengthBytes) {
        throw BadFile(
            fmt::format("{}: the header of {} bytes goes beyond the file's {}; it is cut short: download it again",
                        file.name(), length, bytes.size()));
    }
    return static_cast<std::size_t>(length);
}

} // namespace

TensorFile open_safetensors(const std::filesystem::path& path) {
    TensorFile file;
    file.mapping = std::make_shared<const MappedFile>(path, kLengthBytes, "safetensors");
    const auto bytes = file.mapping->bytes();
    const std::size_t header_bytes = header_length(*file.mapping);
    const std::string_view header(reinterpret_cast<const char*>(bytes.data() + kLengthBytes), header_bytes);
    const auto data = bytes.subspan(kLengthBytes + header_bytes);
    for (HeaderEntry& entry : parse_safetensors_header(header, data.size(), file.mapping->name())) {
        TensorView view;
        view.name = std::move(entry.name);
        view.dtype = std::move(entry.dtype);
        view.type = disk_type(view.dtype);
        view.shape = std::move(entry.shape);
        view.bytes =
            data.subspan(static_cast<std::size_t>(entry.begin), static_cast<std::size_t>(entry.end - entry.begin));
        view.file = &file.mapping->name();
        file.tensors.push_back(std::move(view));
    }
    file.data_bytes = data.size();
    return file;
}

} // namespace entrodraft::model
