// IBM's MLP speculator (Wertheimer et al. 2024) and Arctic's (Snowflake 2025). A state begins as the target's last
// state. At each depth it takes in a token's embedding, with weights of its own or shared ones. Arctic's sum_lstm also
// has the cell of an LSTM.
#include "model/heads/head.h"

#include "model/files/bad_file.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace entrodraft::model {
namespace {

bool is_mlp_speculator(const HeadFiles& files) {
    return files.text("model_type") == "mlp_speculator";
}

// Returns the tensor's stored name at a depth: "emb.1", or Arctic's "emb.1.0". If weights are shared, it is the last
// name that is stored.
std::string stored_name(const HeadTensors& tensors, const std::string& part, int depth) {
    const std::string prefix = tensors.has("speculator.head.0.weight") ? "speculator." : "";
    for (int i = depth; i >= 0; --i)
        for (const char* form : {"{}{}.{}", "{}{}.{}.0"})
            if (std::string name = fmt::format(fmt::runtime(form), prefix, part, i); tensors.has(name + ".weight"))
                return name;
    return fmt::format("{}{}.{}", prefix, part, depth);
}

// Refuses fields that would change the arithmetic.
void check_fields(const Fields& fields, bool is_lstm, const std::string& method) {
    if (!is_lstm && method != "sum_rnn")
        fields.refuse("'method' is " + in_quotes(method) + ", which is not supported; supported: sum_rnn, sum_lstm");
    for (const char* name : {"emb_dim", "proj_dim", "inner_dim"})
        if (const nlohmann::json* size = fields.find(name);
            size && size->is_string() && size->get<std::string>().find('.') != std::string::npos)
            fields.refuse(fmt::format("'{}' is of several layers, which is not supported", name));
    if (is_lstm && !fields.boolean("tie_weights", true))
        fields.refuse("'tie_weights' is false, which sum_lstm does not know");
    if (is_lstm && !fields.boolean("tie_lstm_embs", true))
        fields.refuse("'tie_lstm_embs' is false, which its authors' engine refuses as well");
}

DraftHead read_mlp_speculator(const HeadFiles& files, const HeadTarget& target) {
    const Fields fields(files.json, files.file());
    const std::string method = fields.string("method", "sum_rnn");
    const bool is_lstm = method == "sum_lstm";
    check_fields(fields, is_lstm, method);
    const int n_predict = fields.size("n_predict");
    if (n_predict > 64) fields.refuse("'n_predict' is above 64");
    DraftHead head;
    head.target_layers = {target.config.n_layers};
    head.state = is_lstm ? HeadState::with_cell : HeadState::projected;
    head.max_tokens = n_predict;
    // With shared weights, all modules after the first are the same.
    const int n_modules = is_lstm || fields.boolean("tie_weights", false) ? std::min(n_predict, 2) : n_predict;
    for (int i = 0; i < n_modules; ++i) {
        HeadTensors tensors(files, target);
        ModelConfig config = head_without_layers(target);
        const std::string projection = stored_name(tensors, is_lstm ? "forget_proj" : "proj", i) + ".weight";
        const std::vector<std::int64_t>& shape = files.weights.tensor(projection).shape;
        if (shape.size() != 2) throw BadFile(files.directory.string() + ": '" + projection + "' is not a matrix");
        config.hidden_size = config.embedding_size = static_cast<int>(shape[0]);
        config.activation = Activation::gelu;
        config.norm_epsilon = 1e-6f;
        const double state_weight = std::pow(0.5, 0.5 / n_predict);
        config.embedding_scale =
            static_cast<float>(std::sqrt((1 - state_weight * state_weight) * config.hidden_size / 2.0) / state_weight);
        FusionConfig& fusion = config.fusion;
        fusion.kind = is_lstm ? Fusion::lstm : Fusion::sum;
        fusion.projects_features = true;
        if (i == 0) {
            tensors.norm_features_as_target(config);
            if (fields.boolean("scale_input", false)) fusion.features_scale = static_cast<float>(std::sqrt(0.5));
        } else {
            fusion.feature_size = config.hidden_size;
            if (is_lstm) fusion.cell_size = config.hidden_size;
        }
        if (is_lstm) {
            for (const char* gate : {"forget", "input", "output", "cell"})
                tensors.add(fmt::format("model.{}_projection.weight", gate),
                            stored_name(tensors, fmt::format("{}_proj", gate), i) + ".weight");
            tensors.add_both("model.cell_norm", stored_name(tensors, "cell_ln", i));
        } else {
            tensors.add("model.feature_projection.weight", projection);
        }
        tensors.add_both("model.sum_norm", stored_name(tensors, is_lstm ? "state_ln" : "ln", i));
        // The four gates have one table, which is stored four times.
        tensors.add("model.embed_tokens.weight", stored_name(tensors, is_lstm ? "forget_emb" : "emb", i) + ".weight");
        tensors.add("lm_head.weight", stored_name(tensors, "head", i) + ".weight");
        head.modules.push_back({config, tensors.composed()});
    }
    return head;
}

} // namespace

HeadFormat mlp_speculator_head() {
    return {"mlp_speculator", is_mlp_speculator, read_mlp_speculator};
}

} // namespace entrodraft::model
