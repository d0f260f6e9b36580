// Blockwise parallel decoding (Stern et al. 2018). Each position ahead has a feed-forward layer with a residual
// connection, which reads the target's last state. The target's own output matrix follows each of these layers. The
// paper's first head is the target itself. The paper's code is for another framework, and no weights were published, so
// the layout is ours: docs/models.md.
#include "model/heads/head.h"

#include "model/files/bad_file.h"

#include <fmt/format.h>

namespace entrodraft::model {
namespace {

bool is_blockwise(const HeadFiles& files) {
    return files.text("model_type") == "blockwise";
}

DraftHead read_blockwise(const HeadFiles& files, const HeadTarget& target) {
    constexpr int kMaxBlock = 64;
    const Fields fields(files.json, files.file());
    require_target_size(fields, "hidden_size", target);
    const int block = fields.size("block_size"), inner = fields.size("intermediate_size");
    if (block < 2 || block > kMaxBlock) fields.refuse(fmt::format("'block_size' must be from 2 to {}", kMaxBlock));
    if (const std::string activation = fields.string("hidden_act", "relu"); activation != "relu")
        fields.refuse("'hidden_act' is " + in_quotes(activation) + ", which is not supported; supported: relu");
    DraftHead head;
    head.target_layers = {target.config.n_layers};
    head.state = HeadState::features;
    head.max_tokens = block - 1;
    for (int i = 2; i <= block; ++i) { // the paper's numbers
        const std::string name = fmt::format("heads.{}.", i);
        const auto add = [&](ModelConfig& config, HeadTensors& tensors) {
            config.activation = Activation::relu;
            config.fusion.n_residual_blocks = 1;
            config.fusion.residual_size = inner;
            config.fusion.residual_bias = tensors.has(name + "hidden.bias");
            tensors.add_output();
            tensors.add_both("model.residual_blocks.0", name + "hidden");
            tensors.add_both("model.residual_outputs.0", name + "output");
        };
        head.modules.push_back(module_of_last_state(files, target, add));
    }
    return head;
}

} // namespace

HeadFormat blockwise_head() {
    return {"blockwise", is_blockwise, read_blockwise};
}

} // namespace entrodraft::model
