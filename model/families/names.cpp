#include "entrodraft/model/families/names.h"

#include "entrodraft/model/bad_file.h"
#include "entrodraft/model/families/llama.h"

#include <cstdint>
#include <set>
#include <vector>

namespace entrodraft::model {
namespace {

using Shape = std::vector<std::int64_t>;

std::string to_text(const Shape& shape) {
    std::string text = "[";
    for (const auto dim : shape)
        text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
    return text + "]";
}

// Checks tensors one by one and remembers which were asked for.
class ShapeCheck {
  public:
    explicit ShapeCheck(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

    void expect(const std::string& name, const Shape& shape) {
        const TensorView& tensor = checkpoint_.tensor(name);
        const std::string where = *tensor.file + ": tensor " + in_quotes(name);
        if (tensor.shape != shape) {
            throw BadFile(where + " has shape " + to_text(tensor.shape) + ", but config.json calls for " +
                          to_text(shape));
        }
        if (tensor.type == DiskType::other) {
            throw BadFile(where + " is of type " + tensor.dtype + "; supported: F32, F16, BF16");
        }
        known_.insert(name);
    }
    bool knows(const std::string& name) const { return known_.contains(name); }

  private:
    const Checkpoint& checkpoint_;
    std::set<std::string> known_;
};

void expect_layer(const ModelConfig& config, const LayerNames& names, ShapeCheck& check) {
    const std::int64_t hidden = config.hidden_size;
    const std::int64_t inner = config.intermediate_size;
    const std::int64_t query = static_cast<std::int64_t>(config.n_heads) * config.head_dim;
    const std::int64_t key = static_cast<std::int64_t>(config.n_kv_heads) * config.head_dim;
    check.expect(names.input_norm, {hidden});
    check.expect(names.query, {query, hidden});
    check.expect(names.key, {key, hidden});
    check.expect(names.value, {key, hidden});
    check.expect(names.output, {hidden, query});
    check.expect(names.post_attention_norm, {hidden});
    check.expect(names.gate, {inner, hidden});
    check.expect(names.up, {inner, hidden});
    check.expect(names.down, {hidden, inner});
}

} // namespace

ModelNames names_of(const ModelConfig& config) {
    switch (config.family) {
    case Family::llama:
        return llama_names(config.tied_embeddings);
    }
    throw BadFile("no tensor names are known for this model family");
}

void check_shapes(const ModelConfig& config, const Checkpoint& checkpoint) {
    const ModelNames names = names_of(config);
    ShapeCheck check(checkpoint);
    check.expect(names.embedding, {config.vocab_size, config.hidden_size});
    check.expect(names.final_norm, {config.hidden_size});
    if (!config.tied_embeddings && !checkpoint.has(names.head)) {
        throw BadFile(*checkpoint.tensor(names.embedding).file + ": tensor " + in_quotes(names.head) +
                      " is missing; if the head is the embedding, say \"tie_word_embeddings\": true in config.json");
    }
    check.expect(names.head, {config.vocab_size, config.hidden_size});
    // A config with absurdly many layers ends at the first that the file lacks.
    for (int i = 0; i < config.n_layers; ++i)
        expect_layer(config, names.layer(i), check);

    for (const auto& [name, tensor] : checkpoint.tensors()) {
        if (check.knows(name) || names.ignores(name)) continue;
        throw BadFile(*tensor.file + ": tensor " + in_quotes(name) + " has no place in the model of " +
                      std::to_string(config.n_layers) + " layers that config.json describes");
    }
}

} // namespace entrodraft::model
