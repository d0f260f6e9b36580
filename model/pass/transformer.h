// The forward pass of a transformer, and of its encoder if it has one: the operations and their order. It is written
// once, for every device.
//
// The device defines what an operation computes, and where: cpu/ops.h, gpu/ops.h. An Ops object serves one pass. It has
// the residual stream x, [rows][hidden_size], and knows the pass's rows and the rank's shard of the weights:
//
//   weights()                      the rank's weights: layers, project_out
//   embed()                        x = the tokens' embeddings, scaled and widened, plus positions of a table
//   norm(w), read_residual()       norm(x); x as it is: a device may have to convert it first
//   norm_residual(w)               x = norm(x)
//   column_linear(w, from, to)     to = from * w, the outputs that this rank has
//   rotate_and_append(i, qkv)      norms and rotates queries and keys, appends keys and values to layer i's cache
//   attend(i, qkv)                 attention over layer i's cache
//   feed_forward(layer, from)      activation(gate) * up, or activation(up): column-wise products of from
//   add({{w, from}, ...})          x += the sum of from * w over products and ranks: row-wise products, one all-reduce
//   add_normed({w, from}, norm)    x += norm(that sum)
//   keep_hidden(n)                 returns x, after n layers, to the callers who asked for it
//   final_norm()                   norm(x) of the rows whose logits are wanted
//   head(from)                     these rows' logits, and the results that are made from the logits
//
// For a model whose queries and keys are normed row by row:
//
//   norm_queries_and_keys(layer, qkv)
//
// For latent attention, where qkv has vectors from which keys and values are made, and queries or vectors for them:
//
//   latent_queries(layer, qkv)     the queries
//   append_latent(i, qkv)          norms the vectors of keys and values, rotates the keys after them, appends both
//   absorb(i, queries)             queries for keys as they are cached; the rotated part is rotated
//   expand(i, attended)            the heads' values, from the cached vectors as attend() has combined them
//
// For linear attention, where qkv has queries, keys, values and gates before the convolution:
//
//   delta_net(i, qkv)              the rows' outputs from layer i's states, which they change
//
// For attention with a gate, which follows the values:
//
//   gate_attended(attended, qkv)   attended * sigmoid(gate)
//
// For layers with experts:
//
//   choose_experts(layer, from)    each row's experts and their weights
//   add_experts(layer, from)       x += these experts' weighted outputs and the shared expert's, summed over ranks
//
// For a model with an encoder:
//
//   attend_source(i, query)        attention over the keys and values that layer i has of the slot's source
//
// For its encoder, whose rows may be more than a pass takes:
//
//   for_each_chunk(f)              calls f for each chunk of the source, whose rows are then the pass's
//   final_rows()                   norm(x) of all rows
//   decoder_layers()               the layers whose keys and values of the source are made
//   source_rows()                  room for these keys and values
//   append_source(i, key_value)    keeps them as the source's in layer i of the decoder
//
// For a draft head:
//
//   has_features()                 whether the pass has any
//   features()                     the pass's features; those of the target normed and projected
//   join(features)                 [embedding; features], normed and in the config's order
//   fuse(joined)                   x = W joined
//   replace_residual(features)     x = features, normed if the config says so
//   add_activated(w)               x += activation(x * w)
//   add_feed_forward(w, v)         x += activation(x * w) * v
//   add_features(features)         x = activation(norm(features + x))
//   lstm_cell(gates)               gates += x, and x = the new cell, from the gates and the cell after the features
//   lstm_output(gates)             x = sigmoid(the output gate) * activation(norm(x))
//   run_cell(w, from)              x = an LSTM cell's output; its input gate, output gate and candidate are from * w
//   fuse_activated(joined)         x = U joined + activation(W joined)
//
// Operations return Ops::Operand: activations that are overwritten when the operation runs again. Barriers, all-reduces
// and fused kernels are inside the operations. The branches below depend on the config alone, so all threads and ranks
// take the same ones.
#pragma once

#include "model/families/config.h"
#include "model/weights/layer_plan.h"

#include <cstddef>

namespace entrodraft::model {

template <class Ops> void run_cells(Ops& ops, typename Ops::Operand from) {
    for (const auto& cell : ops.weights().outer.all(Role::cell)) {
        ops.run_cell(cell, from);
        from = ops.read_residual();
    }
}

// Joins a draft head's features of the target with the tokens' embeddings.
template <class Ops> void run_fusion(const ModelConfig& config, Ops& ops) {
    const auto features = ops.features();
    switch (config.fusion.kind) {
    case Fusion::none:
    case Fusion::context:
        return;
    case Fusion::features:
        ops.replace_residual(features);
        break;
    case Fusion::linear:
        ops.fuse(ops.join(features));
        break;
    case Fusion::attention: // the first layer's attention reads joined()
        ops.join(features);
        ops.replace_residual(features);
        break;
    case Fusion::sum:
        ops.add_features(features);
        break;
    case Fusion::lstm:
        ops.lstm_cell(features);
        ops.keep_hidden(0); // in place of the embedding
        ops.lstm_output(features);
        break;
    case Fusion::cells:
        run_cells(ops, ops.join(features));
        break;
    case Fusion::concat:
        ops.fuse_activated(ops.join(features));
        break;
    }
    const auto& blocks = ops.weights().outer.all(Role::residual_block);
    const auto& outputs = ops.weights().outer.all(Role::residual_output);
    for (std::size_t i = 0; i < blocks.size(); ++i)
        outputs.empty() ? ops.add_activated(blocks[i]) : ops.add_feed_forward(blocks[i], outputs[i]);
}

// Devices that run such models satisfy these; others refuse the models when they are loaded (what_needs_cpu()).
template <class Ops>
concept NormsRows = requires(Ops& ops) {
    ops.norm_queries_and_keys(ops.weights().layers[0], ops.read_residual());
};
template <class Ops>
concept AttendsToLatents = requires(Ops& ops) {
    ops.absorb(0, ops.read_residual());
};
template <class Ops>
concept HasLinearAttention = requires(Ops& ops) {
    ops.gate_attended(ops.delta_net(0, ops.read_residual()), ops.read_residual());
};
template <class Ops>
concept HasExperts = requires(Ops& ops) {
    ops.add_experts(ops.weights().layers[0], ops.read_residual());
};

// Returns the attended values of a layer. `qkv` is the result of its first matrix.
template <class Ops> auto run_attention(const ModelConfig& config, Ops& ops, int number, typename Ops::Operand qkv) {
    [[maybe_unused]] const auto& layer = ops.weights().layers[number];
    if constexpr (AttendsToLatents<Ops>) {
        if (config.is_latent()) {
            const auto queries = ops.latent_queries(layer, qkv);
            ops.append_latent(number, qkv);
            return ops.expand(number, ops.attend(number, ops.absorb(number, queries)));
        }
    }
    if constexpr (HasLinearAttention<Ops>)
        if (config.is_linear(number)) return ops.delta_net(number, qkv);
    if constexpr (NormsRows<Ops>)
        if (config.query_key_norm == QueryKeyNorm::row) ops.norm_queries_and_keys(layer, qkv);
    ops.rotate_and_append(number, qkv);
    const auto attended = ops.attend(number, qkv);
    if constexpr (HasLinearAttention<Ops>)
        if (config.gated_attention) return ops.gate_attended(attended, qkv);
    return attended;
}

// Adds the output of the layer's MLP or experts, for `from`, to x.
template <class Ops> void add_mlp(const ModelConfig& config, Ops& ops, int number, typename Ops::Operand from) {
    const auto& layer = ops.weights().layers[number];
    if constexpr (HasExperts<Ops>) {
        if (config.has_experts(number)) {
            ops.choose_experts(layer, from);
            ops.add_experts(layer, from);
            return;
        }
    }
    ops.add({{layer[Role::down], ops.feed_forward(layer, from)}});
}

// Runs between attention and MLP of a layer; does nothing in a model without an encoder.
template <class Ops> void run_cross_attention(const ModelConfig& config, Ops& ops, int number) {
    if (!config.has_encoder()) return;
    const auto& layer = ops.weights().layers[number];
    const bool is_pre_norm = config.block == Block::pre_norm; // else post_norm
    const auto from = is_pre_norm ? ops.norm(layer.vector(Role::cross_norm)) : ops.read_residual();
    const auto query = ops.column_linear(layer[Role::cross_query], from, ops.qkv());
    ops.add({{layer[Role::cross_output], ops.attend_source(number, query)}});
    if (!is_pre_norm) ops.norm_residual(layer.vector(Role::cross_norm));
}

template <class Ops> void run_layer(const ModelConfig& config, Ops& ops, int number) {
    const auto& layer = ops.weights().layers[number];
    const auto project_qkv = [&](auto from) { return ops.column_linear(layer[Role::qkv], from, ops.qkv()); };
    const auto attend = [&](auto qkv) { return run_attention(config, ops, number, qkv); };
    const auto attention = [&](auto from) { return attend(project_qkv(from)); };
    const auto attention_input = [&] {
        const bool is_joined = config.fusion.kind == Fusion::attention && number == 0;
        return is_joined ? ops.joined() : ops.norm(layer.vector(Role::attention_norm));
    };
    const auto mlp = [&](auto from) { return ops.feed_forward(layer, from); };
    switch (config.block) {
    case Block::pre_norm:
        ops.add({{layer[Role::output], attention(attention_input())}});
        run_cross_attention(config, ops, number);
        add_mlp(config, ops, number, ops.norm(layer.vector(Role::mlp_norm)));
        return;
    case Block::post_norm:
        ops.add({{layer[Role::output], attention(ops.read_residual())}});
        ops.norm_residual(layer.vector(Role::attention_norm));
        run_cross_attention(config, ops, number);
        ops.add({{layer[Role::down], mlp(ops.read_residual())}});
        ops.norm_residual(layer.vector(Role::mlp_norm));
        return;
    case Block::sandwich:
        ops.add_normed({layer[Role::output], attention(ops.norm(layer.vector(Role::attention_norm)))},
                       layer.vector(Role::after_attention_norm));
        ops.add_normed({layer[Role::down], mlp(ops.norm(layer.vector(Role::mlp_norm)))},
                       layer.vector(Role::after_mlp_norm));
        return;
    case Block::inner_norm:
        ops.add_normed({layer[Role::output], attention(ops.read_residual())}, layer.vector(Role::attention_norm));
        ops.add_normed({layer[Role::down], mlp(ops.read_residual())}, layer.vector(Role::mlp_norm));
        return;
    case Block::parallel: {
        const auto normed = ops.norm(layer.vector(Role::attention_norm));
        const auto qkv = project_qkv(normed);
        // The MLP runs before attention, whose barriers then serve the MLP's outputs as well.
        const auto inner = mlp(config.shared_norm ? normed : ops.norm(layer.vector(Role::mlp_norm)));
        ops.add({{layer[Role::output], attend(qkv)}, {layer[Role::down], inner}});
        return;
    }
    }
}

// For rows of Fusion::context: all layers make their keys and values of the same features.
template <class Ops> void append_features(const ModelConfig& config, Ops& ops) {
    ops.replace_residual(ops.features());
    for (int layer = 0; layer < config.n_layers; ++layer) {
        const auto& qkv = ops.weights().layers[layer][Role::qkv];
        ops.rotate_and_append(layer, ops.column_linear(qkv, ops.read_residual(), ops.qkv()));
    }
}

// Collective over the ranks that hold the model.
template <class Ops> void run_transformer(const ModelConfig& config, Ops& ops) {
    if (config.fusion.kind == Fusion::context && ops.has_features()) return append_features(config, ops);
    ops.embed();
    if (config.embedding_norm) ops.norm_residual(ops.weights().outer.vector(Role::embedding_norm));
    ops.keep_hidden(0);
    if (ops.has_features()) run_fusion(config, ops);
    for (int layer = 0; layer < config.n_layers; ++layer) {
        run_layer(config, ops, layer);
        ops.keep_hidden(layer + 1);
    }
    auto rows = ops.final_norm();
    if (rows.n_rows == 0) return;
    if (config.embedding_size != config.hidden_size)
        rows = ops.column_linear(ops.weights().outer[Role::project_out], rows, ops.embedded());
    ops.head(rows);
}

// Runs an encoder's layer over all chunks: every row attends to the whole source, whose keys and values come first.
template <class Ops> void run_encoder_layer(const ModelConfig& encoder, Ops& ops, int number) {
    const auto& layer = ops.weights().layers[number];
    const bool is_pre_norm = encoder.block == Block::pre_norm; // else post_norm
    ops.for_each_chunk([&] {
        const auto from = is_pre_norm ? ops.norm(layer.vector(Role::attention_norm)) : ops.read_residual();
        ops.rotate_and_append(number, ops.column_linear(layer[Role::qkv], from, ops.qkv()));
    });
    ops.for_each_chunk([&] {
        ops.add({{layer[Role::output], ops.attend(number, ops.qkv())}});
        if (!is_pre_norm) ops.norm_residual(layer.vector(Role::attention_norm));
        const auto from = is_pre_norm ? ops.norm(layer.vector(Role::mlp_norm)) : ops.read_residual();
        ops.add({{layer[Role::down], ops.feed_forward(layer, from)}});
        if (!is_pre_norm) ops.norm_residual(layer.vector(Role::mlp_norm));
    });
}

// Reads a source, and makes the keys and values that the decoder's layers attend to. `encoder` is encoder_of() of the
// model, and is pre_norm or post_norm. Collective over the ranks that hold the model.
template <class Ops> void run_encoder(const ModelConfig& encoder, Ops& ops) {
    ops.for_each_chunk([&] {
        ops.embed();
        if (encoder.embedding_norm) ops.norm_residual(ops.weights().outer.vector(Role::embedding_norm));
    });
    for (int layer = 0; layer < encoder.n_layers; ++layer)
        run_encoder_layer(encoder, ops, layer);
    ops.for_each_chunk([&] {
        const auto encoded = ops.final_rows();
        int number = 0;
        for (const auto& layer : ops.decoder_layers())
            ops.append_source(number++, ops.column_linear(layer[Role::cross_key_value], encoded, ops.source_rows()));
    });
}

} // namespace entrodraft::model
