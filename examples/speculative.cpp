// Speculative decoding with the libraries alone, in one process. A draft model proposes tokens until the entropy of its
// distribution passes a threshold; the target verifies them in one pass. It is greedy, so the text is the target's own.
//
//   speculative TARGET_DIR DRAFT_DIR PROMPT [NEW_TOKENS]
#include "model/families/read_config.h"
#include <dist/comm/communicator.h>
#include <model/cpu/decoder.h>
#include <model/files/checkpoint.h>
#include <model/host/thread_team.h>
#include <spec/draft/chain.h>
#include <spec/round/engine.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace entrodraft;

int main(int argc, char** argv) try {
    if (argc < 4) throw std::runtime_error("usage: speculative TARGET_DIR DRAFT_DIR PROMPT [NEW_TOKENS]");
    dist::SelfComm alone; // one rank
    dist::SteadyClock clock;
    model::ThreadTeam threads(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
    const auto load = [&](const char* directory) {
        const model::ModelConfig config = model::read_config(directory);
        model::DecoderOptions options;
        options.weight_type = config.stored_type;
        return model::load_cpu_decoder(model::Checkpoint::open(directory), config, options, alone, threads);
    };
    const std::unique_ptr<model::Decoder> target = load(argv[1]), draft = load(argv[2]);
    const model::Tokenizer tokenizer = model::Tokenizer::open(argv[1]);

    spec::EngineOptions options;
    options.vocab_size = std::min(target->config().vocab_size, tokenizer.size());
    options.stop_rule = {"static", {{"threshold", 2.25}}}; // nats
    const auto drafter = spec::make_chain_drafter(spec::make_model_source(*draft, options.vocab_size),
                                                  {spec::draft_limits_of(target->config(), options.vocab_size), clock});

    const dist::RankLayout layout; // of one rank, which does everything
    spec::Engine engine(options, {.layout = &layout,
                                  .replica = &alone,
                                  .target = target.get(),
                                  .drafter = drafter.get(),
                                  .tokenizer = &tokenizer,
                                  .clock = &clock,
                                  .target_config = &target->config()});

    spec::Request request;
    request.prompt = tokenizer.encode(argv[3], true);
    request.max_new_tokens = argc > 4 ? std::stoi(argv[4]) : 64;
    std::optional<spec::Request> next = request;
    spec::EngineCallbacks callbacks;
    callbacks.next_request = [&] { return std::exchange(next, std::nullopt); };
    callbacks.on_text = [](const spec::Request&, const spec::TextPiece& piece) {
        std::cout << piece.text << std::flush;
    };
    callbacks.on_complete = [](const spec::Request&, const spec::Completion& completion) {
        std::cout << '\n';
        std::cerr << completion.stats.tokens_per_target_pass() << " tokens per target pass, "
                  << completion.stats.draft_acceptance_rate() << " of the drafted tokens accepted\n";
    };
    const volatile int no_signal = 0;
    engine.run(callbacks, no_signal);
} catch (const std::exception& error) {
    std::cerr << "speculative: " << error.what() << '\n';
    return 1;
}
