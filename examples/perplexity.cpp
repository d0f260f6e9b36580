// Measures the cost of rounded activations, keys and values: the perplexity of a text, and the distance from
// distributions with activations of 24 bits and keys and values in float32.
//
//   perplexity MODEL TEXT TOKENS [THREADS]
//
// Windows have 512 tokens. The first is the token that the tokenizer puts before texts, if any. The last 255 of each
// window count, as in llama-perplexity. Holds the weights seven times.
#include <dist/comm/communicator.h>
#include <model/cpu/decoder.h>
#include <model/families/read_config.h>
#include <model/files/checkpoint.h>
#include <model/host/thread_team.h>
#include <model/text/tokenizer/tokenizer.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using namespace entrodraft;
using model::ActivationType;
using model::TokenId;
using model::WeightType;

namespace {

constexpr int kWindow = 512, kFirstCounted = kWindow / 2;

// Log-probabilities of the row after each counted token of a window, [tokens][vocabulary].
std::vector<std::vector<double>> read_window(model::Decoder& decoder, const std::vector<TokenId>& window) {
    std::vector<std::vector<double>> distributions;
    decoder.cache().truncate(0, 0);
    for (int at = 0; at < kWindow; at += decoder.max_rows()) {
        std::vector<model::Row> rows;
        std::vector<int> logit_rows;
        for (int i = at; i < std::min(kWindow, at + decoder.max_rows()); ++i) {
            if (i >= kFirstCounted && i + 1 < kWindow) logit_rows.push_back(static_cast<int>(rows.size()));
            rows.push_back({.token = window[static_cast<std::size_t>(i)], .position = i});
        }
        model::Pass pass;
        pass.rows = rows;
        pass.logit_rows = logit_rows;
        const model::PassResult result = decoder.forward(pass);
        const auto vocab = static_cast<std::size_t>(decoder.config().vocab_size);
        for (std::size_t r = 0; r < logit_rows.size(); ++r) {
            const auto row = result.logits.subspan(r * result.logits_stride, vocab);
            const auto largest = static_cast<double>(*std::max_element(row.begin(), row.end()));
            double sum = 0;
            for (const float logit : row)
                sum += std::exp(static_cast<double>(logit) - largest);
            std::vector<double>& logs = distributions.emplace_back();
            for (const float logit : row)
                logs.push_back(static_cast<double>(logit) - largest - std::log(sum));
        }
    }
    return distributions;
}

struct Form {
    ActivationType activations;
    WeightType kv_type;
};
constexpr Form kForms[] = {
    {ActivationType::int24, WeightType::float32}, {ActivationType::int16, WeightType::float32},
    {ActivationType::int8, WeightType::float32},  {ActivationType::int24, WeightType::bfloat16},
    {ActivationType::int24, WeightType::float16}, {ActivationType::int24, WeightType::int8},
    {ActivationType::int8, WeightType::float16},
};

struct Figures {
    double minus_logs = 0, divergence = 0;
    int other_best = 0;
};

std::size_t best_of(const std::vector<double>& row) {
    return static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

} // namespace

int main(int argc, char** argv) try {
    if (argc < 4) throw std::runtime_error("usage: perplexity MODEL TEXT TOKENS [THREADS]");
    dist::SelfComm alone; // one rank
    model::ThreadTeam threads(argc > 4 ? std::stoi(argv[4]) : 2);
    const model::ModelConfig config = model::read_config(argv[1]);
    std::vector<std::unique_ptr<model::Decoder>> decoders;
    for (const Form& form : kForms) {
        model::DecoderOptions options;
        options.weight_type = config.stored_type;
        options.activations = form.activations;
        options.kv_type = form.kv_type;
        options.capacity = kWindow;
        decoders.push_back(model::load_cpu_decoder(model::Checkpoint::open(argv[1]), config, options, alone, threads));
    }
    std::ifstream file(argv[2]);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const model::Tokenizer tokenizer = model::Tokenizer::open(argv[1]);
    const std::vector<TokenId> tokens = tokenizer.encode(text, true), start = tokenizer.encode("", true);
    const int n_tokens = std::stoi(argv[3]);
    if (static_cast<int>(tokens.size()) < n_tokens) throw std::runtime_error("the text is too short");
    Figures all[std::size(kForms)];
    int counted = 0;
    for (int begin = 0; begin + kWindow <= n_tokens; begin += kWindow) {
        std::vector<TokenId> window(tokens.begin() + begin, tokens.begin() + begin + kWindow);
        if (!start.empty()) window[0] = start[0];
        std::vector<std::vector<double>> exact;
        for (std::size_t t = 0; t < std::size(kForms); ++t) {
            const std::vector<std::vector<double>> rows = read_window(*decoders[t], window);
            if (t == 0) exact = rows, counted += static_cast<int>(rows.size());
            for (std::size_t r = 0; r < rows.size(); ++r) {
                all[t].minus_logs -= rows[r][static_cast<std::size_t>(window[kFirstCounted + r + 1])];
                all[t].other_best += best_of(exact[r]) != best_of(rows[r]);
                for (std::size_t i = 0; i < rows[r].size(); ++i)
                    all[t].divergence += std::exp(exact[r][i]) * (exact[r][i] - rows[r][i]);
            }
        }
    }
    for (std::size_t t = 0; t < std::size(kForms); ++t)
        std::cout << "activations " << to_string(kForms[t].activations) << ", keys and values "
                  << to_string(kForms[t].kv_type) << ": perplexity " << std::exp(all[t].minus_logs / counted)
                  << ", divergence " << all[t].divergence / counted << " nats, another best token behind "
                  << all[t].other_best << " of " << counted << '\n';
} catch (const std::exception& error) {
    std::cerr << "perplexity: " << error.what() << '\n';
    return 1;
}
