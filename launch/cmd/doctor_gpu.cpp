// See doctor_gpu.h.
#include "launch/cmd/doctor_gpu.h"

#include "dist/rank/error.h"
#include "launch/start/counted.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"
#include "model/pass/self_check.h"
#include "model/weights/tensor_shapes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <vector>

namespace entrodraft::launch {

namespace {

using model::ModelConfig;
using model::WeightType;

constexpr std::size_t kMaxReadBytes = std::size_t{1} << 30; // larger than any cache

ModelConfig small_llama() { // RMSNorm, rotary, grouped heads, a gate, a head of its own
    ModelConfig config;
    config.family = "llama";
    config.vocab_size = 256;
    config.hidden_size = config.embedding_size = 128;
    config.intermediate_size = 192;
    config.n_layers = 2;
    config.n_heads = 2;
    config.n_kv_heads = 1;
    config.head_dim = config.rope.dims = 64;
    config.attention_scale = 0.125f;
    config.max_positions = 512;
    return config;
}

ModelConfig small_opt() { // LayerNorm, learned positions, biases, one matrix for embedding and head
    ModelConfig config = small_llama();
    config.family = "opt";
    config.norm = model::Norm::layer;
    config.positions = model::Positions::learned;
    config.position_offset = 2;
    config.n_kv_heads = config.n_heads;
    config.activation = model::Activation::relu;
    config.gated_mlp = false;
    config.qkv_bias = config.output_bias = config.mlp_bias = true;
    config.tied_embeddings = true;
    return config;
}

ModelConfig small_gemma2() { // norms around both halves, caps, windows, wide heads
    ModelConfig config = small_llama();
    config.family = "gemma2";
    config.block = model::Block::sandwich;
    config.norm_offset = 1;
    config.activation = model::Activation::gelu_tanh;
    config.head_dim = config.rope.dims = 256;
    config.attention_scale = 0.0625f;
    config.attention_soft_cap = 50;
    config.logit_soft_cap = 30;
    config.windows = {10, 0};
    config.embedding_scale = 11;
    config.tied_embeddings = true;
    return config;
}

ModelConfig small_falcon() { // ALiBi, one key head, attention and MLP side by side
    ModelConfig config = small_llama();
    config.family = "falcon";
    config.block = model::Block::parallel;
    config.shared_norm = true;
    config.norm = model::Norm::layer;
    config.positions = model::Positions::alibi;
    config.scaled_alibi = true;
    config.activation = model::Activation::gelu;
    config.gated_mlp = false;
    config.tied_embeddings = true;
    return config;
}

ModelConfig small_olmoe() { // experts, queries and keys normed row by row
    ModelConfig config = small_llama();
    config.family = "olmoe";
    config.query_key_norm = model::QueryKeyNorm::row;
    config.experts.n_experts = 8;
    config.experts.n_chosen = 2;
    config.experts.intermediate_size = 96;
    config.experts.normalizes = true;
    return config;
}

ModelConfig small_cohere2() { // LayerNorm without biases, rotated pairs side by side, layers that rotate nothing
    ModelConfig config = small_llama();
    config.family = "cohere2";
    config.block = model::Block::parallel;
    config.shared_norm = true;
    config.norm = model::Norm::layer;
    config.norm_bias = false;
    config.rope.interleaved = true;
    config.layer_ropes = {model::LayerRope::common, model::LayerRope::none};
    config.tied_embeddings = true;
    return config;
}

ModelConfig small_qwen3_5() { // linear attention, a gate on the attention's output, part of a head rotated
    ModelConfig config = small_llama();
    config.family = "qwen3_5_text";
    config.norm_offset = 1;
    config.query_key_norm = model::QueryKeyNorm::head;
    config.gated_attention = true;
    config.rope.dims = 16;
    config.linear.layers = {0};
    config.linear.n_key_heads = 2;
    config.linear.n_value_heads = 4;
    config.linear.key_dim = config.linear.value_dim = 48;
    config.linear.n_convolved = 4;
    return config;
}

// Draft heads for a target of small_llama's width. Each kind reads the target's states in another way.
ModelConfig small_head(model::Fusion kind) {
    ModelConfig config = small_llama();
    model::FusionConfig& fusion = config.fusion;
    fusion.kind = kind;
    fusion.feature_size = config.hidden_size;
    fusion.n_feature_norms = 1;
    fusion.feature_norm_size = fusion.feature_size;
    config.n_layers = 0;
    config.final_norm = false;
    switch (kind) {
    case model::Fusion::attention: // EAGLE-3
        config.n_layers = 1;
        config.final_norm = true;
        fusion.n_features = 3;
        fusion.projects_features = true;
        for (model::TokenId token = 0; token < 192; ++token) // some tokens, all over the vocabulary
            config.output_tokens.push_back(token * config.vocab_size / 192);
        break;
    case model::Fusion::linear: // EAGLE
        config.n_layers = 1;
        fusion.has_bias = true;
        fusion.first_attention_norm = false;
        break;
    case model::Fusion::sum: // an MLP speculator
        config.activation = model::Activation::gelu;
        fusion.projects_features = true;
        fusion.features_scale = 0.7f;
        break;
    case model::Fusion::lstm: // Arctic's speculator
        config.activation = model::Activation::gelu;
        fusion.projects_features = true;
        fusion.cell_size = config.hidden_size;
        break;
    case model::Fusion::cells: // Falcon's head
        config.n_layers = 1;
        fusion.n_cells = 2;
        fusion.has_bias = true;
        fusion.first_attention_norm = false;
        break;
    case model::Fusion::concat: // Hydra
        fusion.n_features = 2;
        fusion.has_bias = true;
        break;
    case model::Fusion::features: // Medusa
    case model::Fusion::context:
    case model::Fusion::none:
        fusion.n_residual_blocks = 2;
        break;
    }
    return config;
}

ModelConfig small_blockwise_head() {
    ModelConfig config = small_head(model::Fusion::features);
    config.activation = model::Activation::relu;
    config.fusion.residual_size = 192;
    return config;
}

struct SmallModel {
    const char* name;
    ModelConfig config;
};

std::vector<SmallModel> small_models() {
    using model::Fusion;
    return {{"llama", small_llama()},
            {"opt", small_opt()},
            {"gemma2", small_gemma2()},
            {"falcon", small_falcon()},
            {"olmoe", small_olmoe()},
            {"cohere2", small_cohere2()},
            {"qwen3.5", small_qwen3_5()},
            {"an EAGLE-3 head", small_head(Fusion::attention)},
            {"an EAGLE head", small_head(Fusion::linear)},
            {"an MLP speculator", small_head(Fusion::sum)},
            {"an LSTM speculator", small_head(Fusion::lstm)},
            {"a Hydra head", small_head(Fusion::concat)},
            {"a Medusa head", small_head(Fusion::features)},
            {"Falcon's head", small_head(Fusion::cells)},
            {"blockwise heads", small_blockwise_head()}};
}

// Says where this rank's GPU first computes otherwise than its CPU; empty: nowhere.
std::string wrong_kernels(const RankDevice& device, model::ThreadTeam& team) {
    constexpr std::uint64_t kSeed = 1;
    constexpr int kLong = 300, kShort = 20; // positions before the rows: several blocks of keys, and one
    dist::SelfComm alone;
    for (const auto& [name, config] : small_models()) {
        const model::Checkpoint checkpoint = model::random_checkpoint(config, kSeed);
        for (const WeightType type : {WeightType::float32, WeightType::bfloat16, WeightType::float16, WeightType::int8,
                                      WeightType::int4, WeightType::float8}) {
            const int context = config.n_layers > 0 && config.family == "llama" ? kLong : kShort;
            model::DecoderOptions options;
            options.weight_type = type;
            options.activations = model::ActivationType::int24;
            options.kv_type = WeightType::float32;
            options.capacity = context + model::kCheckedRows;
            const auto tested = load_decoder(device, checkpoint, config, options, alone, team);
            if (type == WeightType::float8) options.weight_type = config.stored_type;
            const auto other = load_decoder({}, checkpoint, config, options, alone, team);
            const std::string difference =
                model::difference_of(*tested, *other, model::self_check_bound(type, tested->config()), context);
            if (!difference.empty()) return fmt::format("{} in {}: {}", name, model::to_string(type), difference);
        }
    }
    return "";
}

void look_at_kernels(dist::Session& session, const RankDevice& device, model::ThreadTeam& team, DoctorReport& report) {
    struct Found {
        char text[240] = {};
    } mine; // goes through a collective as it is
    in_agreement(session, [&] {
        std::string wrong;
        try {
            wrong = wrong_kernels(device, team);
        } catch (const dist::Error& error) { // CUDA failed
            wrong = error.what();
        }
        std::strncpy(mine.text, wrong.c_str(), sizeof mine.text - 1);
    });
    const std::vector<Found> all = from_all(session, mine);
    for (std::size_t rank = 0; rank < all.size(); ++rank)
        if (all[rank].text[0] != '\0')
            report.add(
                {true, fmt::format("the GPU of rank {} computes otherwise than its CPU: {}", rank, all[rank].text)});
    if (std::ranges::all_of(all, [](const Found& found) { return found.text[0] == '\0'; }))
        report.good("kernels of every type compute what the CPU computes");
}

void look_at_links(const std::vector<RankGpu>& gpus, const std::vector<RankFacts>& ranks, DoctorReport& report) {
    const auto are_neighbours = [&](std::size_t a, std::size_t b) {
        return std::strcmp(ranks[a].host, ranks[b].host) == 0 && gpus[a].identity != gpus[b].identity;
    };
    for (std::size_t a = 0; a < gpus.size(); ++a)
        for (std::size_t b = 0; b < gpus.size(); ++b) {
            if (!are_neighbours(a, b)) continue;
            if (gpus[a].links.count == 1)
                return report.add(
                    {false, fmt::format("rank {} sees its own GPU alone and reaches no other: ask for GPUs by "
                                        "node, without binding (docs/gpus.md)",
                                        a)});
            if ((gpus[a].links.access >> gpus[b].number & 1) == 0)
                return report.add(
                    {false, fmt::format("GPU {} has no peer access to GPU {} on host {}: sums between them go "
                                        "through host memory",
                                        gpus[a].number, gpus[b].number, ranks[a].host)});
        }
}

void time_sums(dist::Session& session, const RankDevice& device, std::size_t hidden, int repetitions,
               DoctorReport& report) {
    constexpr std::size_t kSummedRows = 16;
    try {
        const auto group = split_for_passes(session, device, 0);
        if (group->size() == 1) return;
        if (const std::string note = shared_gpu_note(device, group.get()); !note.empty()) report.add({false, note});
        std::vector<NamedCollective> sums;
        in_agreement(session, [&] {
            for (const std::size_t rows : {std::size_t{1}, kSummedRows})
                sums.push_back(
                    {fmt::format("sum on GPUs, {} of {}", counted(static_cast<std::int64_t>(rows), "row"), hidden),
                     sum_for_passes(device, *group, rows * hidden, session.timeout_seconds()),
                     rows * hidden * sizeof(float)});
        });
        report.transports.push_back({group->name(), time_collectives(session, sums, repetitions)});
    } catch (const OrderlyFailure& failure) {
        report.add({true, failure.what()});
    }
}

} // namespace

void look_at_gpus(dist::Session& session, int threads, std::size_t hidden, int repetitions, DoctorReport& report) {
    const RankDevice device = choose_device(session, DeviceChoice::automatic, Backend::native);
    if (!device.is_gpu)
        return report.add({true, n_gpus() < 0
                                     ? "this program was built without CUDA; build it with -DENTRODRAFT_CUDA=ON"
                                     : "not every rank sees a GPU: no device, no driver, or "
                                       "CUDA_VISIBLE_DEVICES is empty"});
    RankGpu mine;
    in_agreement(session, [&] {
        model::ThreadTeam team(threads);
        std::strncpy(mine.name, device.name.c_str(), sizeof mine.name - 1);
        mine.number = device.number;
        mine.sharers = device.sharers;
        mine.identity = device.identity;
        mine.free_bytes = free_gpu_bytes();
        mine.links = gpu_links(device);
        mine.read_rate = read_rate(device, team, std::min<std::size_t>(kMaxReadBytes, mine.free_bytes / 64));
    });
    report.gpus = from_all(session, mine);
    report.good(loaded_nccl());
    look_at_links(report.gpus, report.ranks, report);
    model::ThreadTeam team(threads);
    look_at_kernels(session, device, team, report);
    time_sums(session, device, hidden, repetitions, report);
}

} // namespace entrodraft::launch
