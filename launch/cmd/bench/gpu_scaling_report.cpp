// The extrapolation to GPUs, as tables and as JSON: see scaling_report.h.
#include "launch/cmd/bench/scaling_report.h"
#include "launch/environment.h"
#include "launch/model_shapes.h"

#include <span>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

using Table = std::vector<std::vector<std::string>>;

bool counts(const ExtrapolatedRow& row) {
    return row.pass && row.pass->fits;
}

ExtrapolatedRow row_of(const Hardware& hardware, const ModelShape& shape, int gpus, double bandwidth_share) {
    ExtrapolatedRow row;
    row.hardware = hardware.name;
    row.shape = shape.name;
    row.gpus = gpus;
    try {
        row.pass = gpu_pass(hardware, shape.config, gpus, bandwidth_share);
        if (!row.pass->fits) row.why_none = "the weights do not fit the memory";
    } catch (const std::invalid_argument&) {
        row.why_none = "no more than its " + std::to_string(shape.config.n_heads) + " heads can be shared out";
    }
    return row;
}

const PublishedRate* published_of(const HardwareFile& file, const ExtrapolatedRow& row) {
    for (const PublishedRate& rate : file.published)
        if (rate.hardware == row.hardware && rate.shape == row.shape && rate.gpus == row.gpus) return &rate;
    return nullptr;
}

// Tokens a second of all GPUs of the largest count, in replicas of this row's.
double replicas_rate(const ExtrapolatedRow& row) {
    return throughput_of_replicas(kMostGpus, row.gpus, row.pass->token());
}

std::vector<std::string> cells_of(const ExtrapolatedRow& row) {
    const auto ms = [](double seconds) { return format_number(seconds * 1e3, 3); };
    return {std::to_string(row.gpus),
            ms(row.pass->pass()),
            ms(row.pass->pass() - row.pass->communication),
            ms(row.pass->communication),
            format_number(1 / row.pass->token(), 1),
            format_number(replicas_rate(row), 0)};
}

std::string published_text(const ExtrapolatedRow& row) {
    const PublishedRate& rate = *row.published;
    return "published for " + std::to_string(row.gpus) + " GPUs: " + format_number(rate.tokens_per_second, 1) +
           " tokens/s, " + format_number(rate.tokens_per_second * row.pass->token(), 2) + " of the extrapolated (" +
           rate.source + ")\n";
}

// The rows of one model on one kind of hardware.
std::string table_text(std::span<const ExtrapolatedRow> rows) {
    Table table = {{"GPUs", "t_target ms", "of it reading", "all-reduces", "tokens/s",
                    "tokens/s of " + std::to_string(kMostGpus) + " as replicas"}};
    const ExtrapolatedRow *fastest = nullptr, *most = nullptr;
    std::string notes;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const ExtrapolatedRow& row = rows[i];
        if (!counts(row)) {
            if (i == 0 || rows[i - 1].why_none != row.why_none)
                notes += "not on " + std::to_string(row.gpus) + " GPUs: " + row.why_none + "\n";
            continue;
        }
        table.push_back(cells_of(row));
        if (row.published) notes += published_text(row);
        if (fastest == nullptr || row.pass->token() < fastest->pass->token()) fastest = &row;
        if (most == nullptr || replicas_rate(row) > replicas_rate(*most)) most = &row;
    }
    std::string text = rows.front().shape + " on " + rows.front().hardware + "\n" + format_table(table) + notes;
    if (fastest != nullptr)
        text += "best for latency: " + std::to_string(fastest->gpus) + " GPUs; for throughput: replicas of " +
                std::to_string(most->gpus) + "\n";
    return text;
}

} // namespace

std::vector<ExtrapolatedRow> extrapolate(const HardwareFile& file, const std::vector<std::string>& shapes,
                                         double bandwidth_share) {
    std::vector<ExtrapolatedRow> rows;
    for (const Hardware& hardware : file.hardware)
        for (const std::string& name : shapes)
            for (int gpus = kFewestGpus; gpus <= kMostGpus; gpus *= 2) {
                rows.push_back(row_of(hardware, model_shape(name), gpus, bandwidth_share));
                rows.back().published = published_of(file, rows.back());
            }
    return rows;
}

std::string to_text(const std::vector<ExtrapolatedRow>& rows, double bandwidth_share) {
    std::string text =
        "EXTRAPOLATION, nothing of it measured here: plain decoding of one text in bfloat16, the weights read at " +
        format_number(bandwidth_share * 100, 0) +
        " % of the memory's bandwidth;\nall-reduces: latency and 2 (g - 1) / g of the bytes over NVLink within a node "
        "of g GPUs, then 2 ceil(log2 m) hops and 2 (m - 1) / m of a\ng-th of the bytes over the network among m nodes. "
        "Keys and values, norms and the starting of kernels are left out.\n";
    for (std::size_t begin = 0; begin < rows.size();) {
        std::size_t end = begin + 1;
        while (end < rows.size() && rows[end].hardware == rows[begin].hardware && rows[end].shape == rows[begin].shape)
            ++end;
        text += '\n';
        text += table_text(std::span(rows).subspan(begin, end - begin));
        begin = end;
    }
    return text;
}

Json extrapolated_json(const std::vector<ExtrapolatedRow>& rows) {
    Json json = {{"extrapolated", Json::array()}, {"not_extrapolated", Json::array()}};
    for (const ExtrapolatedRow& row : rows) {
        Json one = {{"hardware", row.hardware}, {"shape", row.shape}, {"gpus", row.gpus}};
        if (!counts(row)) {
            one["why"] = row.why_none;
            json["not_extrapolated"].push_back(one);
            continue;
        }
        one["t_target_ms"] = row.pass->pass() * 1e3;
        one["all_reduces_ms"] = row.pass->communication * 1e3;
        one["tokens_per_second"] = 1 / row.pass->token();
        one["replicas_tokens_per_second"] = replicas_rate(row);
        if (row.published) {
            one["published_tokens_per_second"] = row.published->tokens_per_second;
            one["published_source"] = row.published->source;
        }
        json["extrapolated"].push_back(one);
    }
    return json;
}

} // namespace entrodraft::launch
