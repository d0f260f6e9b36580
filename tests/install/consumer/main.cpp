// Continues a prompt greedily by the installed libraries alone, in one process: consumer MODEL_DIR PROMPT N.
#include <entrodraft/dist/communicator.h>
#include <entrodraft/model/checkpoint.h>
#include <entrodraft/model/config.h>
#include <entrodraft/model/decoder.h>
#include <entrodraft/model/kernels/thread_team.h>
#include <entrodraft/model/tokenizer.h>
#include <entrodraft/spec/sampling.h>

#include <iostream>
#include <string>
#include <vector>

namespace dist = entrodraft::dist;
namespace model = entrodraft::model;

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    const model::ModelConfig config = model::read_config(argv[1]);
    const model::Tokenizer tokenizer = model::Tokenizer::open(argv[1]);
    model::ThreadTeam team(1);
    dist::SelfComm alone;
    model::Decoder decoder = model::Decoder::load(model::Checkpoint::open(argv[1]), config, {}, alone, team);

    std::vector<model::TokenId> text = tokenizer.encode(argv[2], true);
    std::vector<model::Row> rows;
    for (std::size_t i = 0; i < text.size(); ++i)
        rows.push_back({text[i], 0, static_cast<int>(i), i == 0 ? -1 : static_cast<int>(i) - 1});
    for (int n = std::stoi(argv[3]); n > 0; --n) {
        const std::vector<int> last = {static_cast<int>(rows.size()) - 1};
        const model::PassResult result = decoder.forward({.rows = rows, .logit_rows = last});
        text.push_back(entrodraft::spec::arg_max(result.logits.first(static_cast<std::size_t>(config.vocab_size))));
        rows = {{text.back(), 0, static_cast<int>(text.size()) - 1, -1}};
    }
    std::cout << tokenizer.decode(text, true) << '\n';
}
