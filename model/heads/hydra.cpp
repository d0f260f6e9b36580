// Hydra (Ankner et al. 2024): heads like Medusa's, but each also reads the embeddings of the tokens that were drafted
// before it. In Hydra++, a layer over the target's states comes before the heads.
#include "model/heads/head.h"

#include "model/files/bad_file.h"

#include <fmt/format.h>

namespace entrodraft::model {
namespace {

bool is_hydra(const HeadFiles& files) {
    return files.json.contains("hydra_num_heads");
}

// Hydra++: a layer like the target's over the features of all tokens so far. Its norm is that of the heads' features.
const std::string kPrefix = "prefix_embeding_layer.";

HeadModule read_prefix(const HeadFiles& files, const HeadTarget& target, bool norms_features) {
    HeadTensors tensors(files, target);
    ModelConfig config = target.config;
    config.n_layers = 1;
    config.final_norm = false;
    config.tied_embeddings = true; // and it has none: it makes no logits
    config.fusion.kind = Fusion::features;
    config.fusion.feature_size = config.hidden_size;
    if (norms_features) tensors.norm_features_as_target(config);
    tensors.add_layer(0, kPrefix + "layers.0.");
    return {config, tensors.composed()};
}

DraftHead read_hydra(const HeadFiles& files, const HeadTarget& target) {
    const Fields fields(files.json, files.file());
    const std::string arch = fields.string("hydra_head_arch", "mlp");
    if (arch != "mlp" && arch != "prefix-mlp")
        fields.refuse("'hydra_head_arch' is " + in_quotes(arch) +
                      ", which is not supported; supported: mlp, prefix-mlp");
    if (!fields.boolean("grounded_heads", true)) fields.refuse("'grounded_heads' is false, which is not supported");
    const int offset = fields.count("hidden_state_offset", 0), n_layers = target.config.n_layers;
    if (offset > n_layers)
        fields.refuse(fmt::format("'hidden_state_offset' is {}; the target has {} layers", offset, n_layers));
    const int n_heads = fields.size("hydra_num_heads"), n_blocks = fields.size("hydra_num_layers", 1);
    DraftHead head;
    head.target_layers = {n_layers - offset};
    head.state = HeadState::grown;
    head.max_tokens = n_heads;
    head.has_prefix = arch == "prefix-mlp";
    const bool norms_features = offset == 0; // states of layers before the last are not normed
    if (head.has_prefix) {
        if (target.config.family != "llama")
            fields.refuse("'hydra_head_arch' is 'prefix-mlp', which is of Llama targets; this one is a " +
                          target.config.family);
        head.modules.push_back(read_prefix(files, target, norms_features));
    }
    for (int i = 0; i < n_heads; ++i) {
        // Before each part, Hydra++ has a place for a dropout.
        const auto block_name = [&](int block) {
            return fmt::format("hydra_mlp.{}.{}.", i, head.has_prefix ? 2 * block + 1 : block);
        };
        HeadTensors tensors(files, target);
        ModelConfig config = head_without_layers(target);
        FusionConfig& fusion = config.fusion;
        fusion.kind = Fusion::concat;
        fusion.n_features = i + 1;
        fusion.has_bias = config.head_bias = true;
        fusion.n_residual_blocks = n_blocks - 1;
        config.norm_epsilon = target.config.norm_epsilon;
        if (head.has_prefix)
            tensors.norm_features(config, 1, config.hidden_size, kPrefix + "norm");
        else if (norms_features)
            tensors.norm_features_as_target(config);
        tensors.add_embedding("input_embed_fn.weight");
        tensors.add_both("model.fusion", block_name(0) + "linear");
        tensors.add_both("model.skip", block_name(0) + "res_connection");
        for (int block = 1; block < n_blocks; ++block)
            tensors.add_both(fmt::format("model.residual_blocks.{}", block - 1), block_name(block) + "linear");
        tensors.add_both("lm_head", fmt::format("hydra_lm_head.{}{}", i, head.has_prefix ? ".1" : ""));
        head.modules.push_back({config, tensors.composed()});
    }
    return head;
}

} // namespace

HeadFormat hydra_head() {
    return {"hydra", is_hydra, read_hydra};
}

} // namespace entrodraft::model
