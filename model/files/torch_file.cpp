// Reads one file of torch.save (pytorch_model.bin): a zip archive with a pickled dict of tensors, memory-mapped. The
// archive has ROOT/data.pkl, ROOT/data/KEY for every storage, perhaps ROOT/byteorder, and other entries that do not
// concern tensors.
#include "model/files/bad_file.h"
#include "model/files/mapped_file.h"
#include "model/files/pickle.h"
#include "model/files/tensor_view.h"
#include "model/files/zip_archive.h"

#include <fmt/format.h>
#include <string>
#include <unordered_set>
#include <utility>

namespace entrodraft::model {
namespace {

constexpr std::string_view kPickleEntry = "/data.pkl";

std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void require_zip(const MappedFile& file) {
    if (file.text().starts_with("PK\3\4")) return;
    if (file.text().starts_with('\x80')) {
        throw BadFile(file.name() + ": written by torch before 1.6 or without its zip format, which is not read; load "
                                    "it with torch and save it again, or save the model as safetensors");
    }
    throw BadFile(file.name() + ": no zip archive, as torch.save writes it; is it a pytorch_model.bin?");
}

// Returns the directory of the archive that contains all of torch's entries.
std::string_view find_root(const std::vector<ZipEntry>& entries, const std::string& file) {
    std::string_view root;
    for (const ZipEntry& entry : entries) {
        if (!entry.name.ends_with(kPickleEntry)) continue;
        const std::string_view found = entry.name.substr(0, entry.name.size() - kPickleEntry.size());
        if (!root.empty()) {
            throw BadFile(file + ": two pickles, " + in_quotes(root) + " and " + in_quotes(found) +
                          "; torch.save writes one");
        }
        root = found;
    }
    if (root.empty()) throw BadFile(file + ": the zip archive holds no data.pkl, so torch.save did not write it");
    return root;
}

void require_little_endian(const std::vector<ZipEntry>& entries, const std::string& root, const std::string& file) {
    const ZipEntry* const order = find_entry(entries, root + "/byteorder");
    if (order == nullptr || text_of(order->bytes) == "little") return; // torch before 2.1 did not write it
    throw BadFile(file + ": its numbers are stored as " + in_quotes(text_of(order->bytes)) +
                  " endian; only 'little' is read: save the model again on such a machine");
}

// Finds a tensor's bytes within its storage's bytes, and checks everything.
class ViewMaker {
  public:
    ViewMaker(const std::vector<ZipEntry>& entries, const std::string& root, const std::string& file)
        : entries_(entries), prefix_(root + "/data/"), file_(file) {}

    TensorView view_of(PickledTensor&& tensor) {
        const std::size_t size = element_bits(tensor.storage.dtype) / 8;
        const auto storage = bytes_of(tensor, size);
        const std::uint64_t n_elements = count_of(tensor);
        require_contiguous(tensor, n_elements);
        if (tensor.offset > tensor.storage.n_elements || n_elements > tensor.storage.n_elements - tensor.offset) {
            refuse(tensor, fmt::format("its {} elements from {} on go beyond the {} of its storage", n_elements,
                                       tensor.offset, tensor.storage.n_elements));
        }
        TensorView view;
        view.dtype = tensor.storage.dtype;
        view.type = disk_type(view.dtype);
        view.bytes = storage.subspan(static_cast<std::size_t>(tensor.offset) * size,
                                     static_cast<std::size_t>(n_elements) * size);
        view.file = &file_;
        view.name = std::move(tensor.name);
        view.shape = std::move(tensor.shape);
        return view;
    }

    std::uint64_t storage_bytes() const { return storage_bytes_; } // of all storages seen so far; each counts once

  private:
    [[noreturn]] void refuse(const PickledTensor& tensor, const std::string& reason) const {
        throw BadFile(file_ + ": tensor " + in_quotes(tensor.name) + ": " + reason);
    }

    std::span<const std::byte> bytes_of(const PickledTensor& tensor, std::size_t size) {
        const PickledStorage& storage = tensor.storage;
        const ZipEntry* const entry = find_entry(entries_, prefix_ + std::string(storage.key));
        if (entry == nullptr) refuse(tensor, "its storage " + in_quotes(storage.key) + " is not in the archive");
        if (storage.n_elements != entry->bytes.size() / size || entry->bytes.size() % size != 0) {
            refuse(tensor, fmt::format("its storage {} has {} bytes, and {} elements of {} should be there",
                                       in_quotes(storage.key), entry->bytes.size(), storage.n_elements, storage.dtype));
        }
        if (seen_.insert(entry).second) storage_bytes_ += entry->bytes.size();
        return entry->bytes;
    }

    std::uint64_t count_of(const PickledTensor& tensor) const {
        std::uint64_t count = 1;
        for (const std::int64_t dim : tensor.shape) {
            if (__builtin_mul_overflow(count, static_cast<std::uint64_t>(dim), &count)) {
                refuse(tensor, "the product of its dimensions does not fit 64 bits");
            }
        }
        return count;
    }

    // The stride of a dimension of 1 is never used. Without elements, none is used.
    void require_contiguous(const PickledTensor& tensor, std::uint64_t n_elements) const {
        std::uint64_t expected = 1;
        for (std::size_t i = tensor.shape.size(); n_elements > 0 && i-- > 0;) {
            if (tensor.shape[i] == 1) continue;
            if (static_cast<std::uint64_t>(tensor.strides[i]) != expected) {
                refuse(tensor,
                       fmt::format("its elements do not lie row by row (dimension {} has stride {}, not {}), as of a "
                                   "transposed view; save it with .contiguous()",
                                   i, tensor.strides[i], expected));
            }
            expected *= static_cast<std::uint64_t>(tensor.shape[i]);
        }
    }

    const std::vector<ZipEntry>& entries_;
    std::string prefix_;
    const std::string& file_;
    std::unordered_set<const ZipEntry*> seen_;
    std::uint64_t storage_bytes_ = 0;
};

} // namespace

TensorFile open_torch_file(const std::filesystem::path& path) {
    TensorFile file;
    file.mapping = std::make_shared<const MappedFile>(path, kShortestZip, "torch");
    const std::string& name = file.mapping->name();
    require_zip(*file.mapping);
    const std::vector<ZipEntry> entries = read_zip(*file.mapping);
    const std::string root(find_root(entries, name));
    require_little_endian(entries, root, name);
    const ZipEntry& pickle = *find_entry(entries, root + std::string(kPickleEntry));
    ViewMaker maker(entries, root, name);
    for (PickledTensor& tensor : read_pickled_tensors(pickle.bytes, name + ": " + std::string(kPickleEntry.substr(1))))
        file.tensors.push_back(maker.view_of(std::move(tensor)));
    file.data_bytes = maker.storage_bytes();
    return file;
}

} // namespace entrodraft::model
