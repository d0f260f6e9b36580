// Medusa (Cai et al. 2024): for each position ahead a head of its own over the target's last state. Their tensors as a
// file of heads, in a whole checkpoint, or without matrices for logits, which are the target's then.
#include "model/heads/head.h"

#include "model/checkpoint/bad_file.h"

#include <fmt/format.h>

namespace entrodraft::model {
namespace {

bool is_medusa(const HeadFiles& files) {
    return files.json.contains("medusa_num_heads") || files.weights.has("medusa_head.0.0.linear.weight");
}

DraftHead read_medusa(const HeadFiles& files, const HeadTarget& target) {
    const Fields fields(files.json, files.file());
    HeadTensors tensors(files, target);
    const std::string prefix = tensors.has("medusa_head.0.0.linear.weight") ? "medusa_head." : "";
    DraftHead head;
    head.target_layers = {target.config.n_layers};
    head.state = HeadState::features;
    const int n_blocks = fields.size("medusa_num_layers", 1);
    // Published configs say another number than there are.
    for (int i = 0; tensors.has(fmt::format("{}{}.0.linear.weight", prefix, i)); ++i) {
        ModelConfig config = head_without_layers(target);
        config.fusion.n_residual_blocks = n_blocks;
        HeadTensors module(files, target);
        module.norm_features_as_target(config);
        module.add_output(fmt::format("{}{}.{}.weight", prefix, i, n_blocks));
        for (int block = 0; block < n_blocks; ++block)
            module.add_both(fmt::format("model.residual_blocks.{}", block),
                            fmt::format("{}{}.{}.linear", prefix, i, block));
        head.modules.push_back({config, module.composed()});
    }
    head.max_tokens = static_cast<int>(head.modules.size());
    if (head.modules.empty())
        throw BadFile(files.directory.string() + ": tensor '" + prefix + "0.0.linear.weight' is missing");
    return head;
}

} // namespace

HeadFormat medusa_head() {
    return {"medusa", is_medusa, read_medusa};
}

} // namespace entrodraft::model
