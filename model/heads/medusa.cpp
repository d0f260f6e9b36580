// Medusa (Cai et al. 2024): each position ahead has a head of its own over the target's last state. The tensors may be
// in a file of heads, or part of a whole checkpoint. They may be without matrices for logits, which are then the
// target's. They may have vLLM's names. If the file says so, one matrix serves all heads, or there is a list of the
// tokens that the heads know.
#include "model/heads/head.h"

#include "model/files/bad_file.h"

#include <fmt/format.h>

namespace entrodraft::model {
namespace {

// The naming of the tensors.
struct Names {
    std::string prefix;
    bool are_vllms = false;
    int n_blocks = 1;

    std::string block(int head, int number) const {
        if (are_vllms) return prefix + fmt::format("blocks.{}.layers.{}", head, number);
        return prefix + fmt::format("{}.{}.linear", head, number);
    }
    std::string output(int head, bool is_shared) const {
        if (are_vllms) return prefix + fmt::format("lm_heads.{}.weight", is_shared ? 0 : head);
        return prefix + fmt::format("{}.{}.weight", head, n_blocks);
    }
};

Names names_in(const HeadFiles& files, const Fields& fields) {
    for (const char* prefix : {"", "medusa_heads."})
        if (files.weights.has(std::string(prefix) + "blocks.0.layers.0.weight"))
            return {prefix, true, fields.size("num_hidden_layers", 1)};
    const bool is_inside = files.weights.has("medusa_head.0.0.linear.weight");
    return {is_inside ? "medusa_head." : "", false, fields.size("medusa_num_layers", 1)};
}

bool is_medusa(const HeadFiles& files) {
    const Fields fields(files.json, files.file());
    return files.json.contains("medusa_num_heads") || files.text("model_type") == "medusa" ||
           files.weights.has(names_in(files, fields).block(0, 0) + ".weight");
}

DraftHead read_medusa(const HeadFiles& files, const HeadTarget& target) {
    const Fields fields(files.json, files.file());
    const Names names = names_in(files, fields);
    const bool is_shared = fields.boolean("original_lm_head", false);
    if (fields.positive("logit_scale", 1) != 1) fields.refuse("'logit_scale' other than 1 is not read");
    DraftHead head;
    head.target_layers = {target.config.n_layers};
    head.state = HeadState::features;
    const std::vector<TokenId> tokens = read_tokens(files, target, "token_map", false);
    // Published configs give another number than the file has.
    for (int i = 0; files.weights.has(names.block(i, 0) + ".weight"); ++i) {
        const auto add = [&](ModelConfig& config, HeadTensors& tensors) {
            config.fusion.n_residual_blocks = names.n_blocks;
            config.fusion.residual_bias = tensors.has(names.block(i, 0) + ".bias");
            config.output_tokens = tokens;
            tensors.add_output(is_shared && tensors.has("lm_head.weight") ? "lm_head.weight"
                                                                          : names.output(i, is_shared));
            for (int block = 0; block < names.n_blocks; ++block)
                tensors.add_both(fmt::format("model.residual_blocks.{}", block), names.block(i, block));
        };
        head.modules.push_back(module_of_last_state(files, target, add));
    }
    head.max_tokens = static_cast<int>(head.modules.size());
    if (head.modules.empty())
        throw BadFile(files.directory.string() + ": tensor '" + names.block(0, 0) + ".weight' is missing");
    return head;
}

} // namespace

HeadFormat medusa_head() {
    return {"medusa", is_medusa, read_medusa};
}

} // namespace entrodraft::model
