// Declares a recording: the text that a target emits for some prompts, and the tokens that draft models would propose
// at each place of the text. This is enough to replay any stop rule exactly (simulate.h), because greedy and gumbel
// text does not depend on drafts.
//
// This file has the data, and its form in a file (docs/formats.md). Made by recorder.h; read by the commands simulate
// and tune.
#pragma once

#include "spec/draft/drafter.h"
#include "spec/protocol/request.h"
#include "spec/protocol/stats.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace entrodraft::spec {

struct RecordedModel {
    std::string model;
    std::string dtype;
    int context = 0; // positions
    // For a draft head: the most tokens that it drafts, 0 for any number.
    std::optional<int> head_tokens = std::nullopt;

    bool is_head() const { return head_tokens.has_value(); }
};

// Data that all texts of a recording share.
struct RecordingHead {
    RecordedModel target;
    std::vector<RecordedModel> drafts;
    bool noisy = false; // gumbel; else greedy
    SamplingOptions sampling;
    int max_draft_tokens = 15;      // the longest chain that can be replayed
    std::vector<std::string> trees; // shapes whose rows are recorded, as --tree has them
    int tree_children = 0;          // most children of such a row
    int vocab_size = 0;
    int max_positions = 0; // of the target
    std::vector<TokenId> eos_tokens;
    std::string requests = "{}";    // JSON: options of the requests without sampling: bans, ends, chat
    std::string input;              // file of prompts
    std::string environment = "{}"; // JSON
    std::string collectives = "[]"; // JSON
    std::vector<Costs> costs;       // of each draft with the target

    void add_tree(const TreeOptions& tree);
};

// The proposals of one draft along a text. Place i is the i-th new token. Columns are [places] if not said otherwise.
struct DraftRecord {
    static constexpr std::size_t kTop = 8;

    std::vector<TokenId> token; // after the true text; -1: every token is banned
    std::vector<float> entropy; // nats
    std::vector<float> probability;
    std::vector<float> log_probability; // of the text's token
    std::vector<float> cross_entropy;   // nats
    std::vector<float> overlap;
    std::vector<float> margin;
    std::vector<std::int32_t> rank; // of the text's token, from 0
    std::vector<TokenId> top_token; // [places][kTop]
    std::vector<float> top_log_probability;

    // The chains: for each place where `token` is not the text's, in order, the number of tokens that the draft drafts
    // next, and these tokens. A head has a chain for each place: after its first token it drafts from its own states,
    // whatever the text is.
    std::vector<std::int32_t> astray_length;
    std::vector<TokenId> astray_token;
    std::vector<float> astray_entropy;
    std::vector<float> astray_probability;
    std::vector<float> astray_margin; // empty in older recordings, whose replays have no margins

    // Rows that trees read, [rows]: first the places' rows, then others, each after a token of an earlier row
    // (recorded_trees.h). With a head this can also be the text's token. Empty if no trees were recorded.
    std::vector<std::int32_t> tree_parent; // the earlier row; -1: a place's row
    std::vector<TokenId> tree_behind;      // the token after it; -1: a place's row
    std::vector<std::int32_t> tree_children;
    std::vector<float> tree_entropy;        // nats
    std::vector<float> tree_ranked_entropy; // of the distribution that ranks siblings
    // [all children], row by row, the best first.
    std::vector<TokenId> tree_token;
    std::vector<float> tree_probability;
    std::vector<float> tree_ranked_probability;

    std::size_t places() const { return token.size(); }
    bool has_margins() const { return astray_margin.size() == astray_token.size(); }
};

struct TextRecord {
    std::string id = "null"; // compact JSON
    int new_tokens = 0;      // places within the text; the others come after a stop string
    FinishReason finish_reason = FinishReason::length;
    int max_new_tokens = 0;
    bool ignore_eos = false;
    std::uint64_t seed = 0;
    double temperature = 0;
    std::vector<std::string> pieces; // [new_tokens]
    // The texts of the prompt's tokens and of rejected drafted ones, for people: written, never read back.
    std::map<TokenId, std::string> token_texts;

    std::vector<TokenId> prompt;
    std::vector<TokenId> token;        // [places], as the next columns
    std::vector<float> target_entropy; // nats
    std::vector<float> target_log_probability;
    std::vector<float> target_margin;
    std::vector<DraftRecord> drafts;

    std::size_t places() const { return token.size(); }
};

struct RecordedError { // a line of input that could not be served
    std::string id = "null";
    std::string error;
};

using RecordedLine = std::variant<TextRecord, RecordedError>;

struct Recording {
    RecordingHead head;
    std::vector<RecordedLine> lines;
    std::uint64_t whole_bytes = 0; // bytes of the file's whole blocks; a torn block may follow

    std::vector<const TextRecord*> texts() const;
};

// Blocks of the file.
std::string pack(const RecordingHead& head);
// The first field whose difference keeps recordings with these heads from being one, with both values as JSON, long
// ones cut; none: they can be one. They may differ in environment, measurements, and the file of prompts.
struct HeadDifference {
    std::string field; // "sampling.temperature"
    std::string a, b;
};
std::optional<HeadDifference> first_difference(const RecordingHead& a, const RecordingHead& b);
std::string pack(const RecordedLine& line);

// Throws std::runtime_error with the file, the block and its fault. A torn last block is not an error if `may_be_torn`.
Recording read_recording(const std::string& file, bool may_be_torn = false);

} // namespace entrodraft::spec
