// Hydra (Ankner et al. 2024): heads like Medusa's, each of which also reads the embeddings of the tokens drafted before
// it.
#include "model/heads/head.h"

#include "model/checkpoint/bad_file.h"

#include <fmt/format.h>

namespace entrodraft::model {
namespace {

bool is_hydra(const HeadFiles& files) {
    return files.json.contains("hydra_num_heads");
}

DraftHead read_hydra(const HeadFiles& files, const HeadTarget& target) {
    const Fields fields(files.json, files.file());
    if (const std::string arch = fields.string("hydra_head_arch", "mlp"); arch != "mlp")
        fields.refuse("'hydra_head_arch' is " + in_quotes(arch) + ", which is not supported; supported: mlp");
    if (!fields.boolean("grounded_heads", true)) fields.refuse("'grounded_heads' is false, which is not supported");
    const int offset = fields.count("hidden_state_offset", 0), n_layers = target.config.n_layers;
    if (offset > n_layers)
        fields.refuse(fmt::format("'hidden_state_offset' is {}; the target has {} layers", offset, n_layers));
    const int n_heads = fields.size("hydra_num_heads"), n_blocks = fields.size("hydra_num_layers", 1);
    DraftHead head;
    head.target_layers = {n_layers - offset};
    head.state = HeadState::grown;
    head.max_tokens = n_heads;
    for (int i = 0; i < n_heads; ++i) {
        HeadTensors tensors(files, target);
        ModelConfig config = head_without_layers(target);
        FusionConfig& fusion = config.fusion;
        fusion.kind = Fusion::concat;
        fusion.n_features = i + 1;
        fusion.has_bias = config.head_bias = true;
        fusion.n_residual_blocks = n_blocks - 1;
        if (offset == 0) tensors.norm_features_as_target(config); // what comes from layers below the last is raw
        tensors.add_embedding("input_embed_fn.weight");
        tensors.add_both("model.fusion", fmt::format("hydra_mlp.{}.0.linear", i));
        tensors.add_both("model.skip", fmt::format("hydra_mlp.{}.0.res_connection", i));
        for (int block = 1; block < n_blocks; ++block)
            tensors.add_both(fmt::format("model.residual_blocks.{}", block - 1),
                             fmt::format("hydra_mlp.{}.{}.linear", i, block));
        tensors.add_both("lm_head", fmt::format("hydra_lm_head.{}", i));
        head.modules.push_back({config, tensors.composed()});
    }
    return head;
}

} // namespace

HeadFormat hydra_head() {
    return {"hydra", is_hydra, read_hydra};
}

} // namespace entrodraft::model
