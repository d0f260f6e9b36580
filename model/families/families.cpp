#include "model/families/families.h"

#include <stdexcept>

namespace entrodraft::model {

std::span<const FamilyDescription> families() {
    static const std::vector<FamilyDescription> all = {
        gpt2_family(),  opt_family(),    gpt_neox_family(), llama_family(),  mistral_family(), qwen2_family(),
        qwen3_family(), falcon_family(), gemma_family(),    gemma2_family(), phi_family(),     phi3_family()};
    return all;
}

const FamilyDescription& describe(Family family) {
    for (const FamilyDescription& each : families())
        if (each.family == family) return each;
    throw std::invalid_argument("describe: no such model family");
}

std::string to_string(Family family) {
    return describe(family).model_type;
}

TensorNames weight_only(const std::string& stem) {
    return {stem + ".weight", ""};
}

TensorNames with_bias(const std::string& stem, bool has_bias) {
    return {stem + ".weight", has_bias ? stem + ".bias" : ""};
}

} // namespace entrodraft::model
