// A recording: what a target emits for some prompts, and what draft models would propose at every place of it. Enough
// to replay any stop rule exactly (simulate.h), since greedy and gumbel text does not depend on what is drafted.
//
// Data, and its form in a file (docs/formats.md). Made by recorder.h; read by the commands simulate and tune.
#pragma once

#include "spec/draft/drafter.h"
#include "spec/protocol/request.h"
#include "spec/protocol/stats.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace entrodraft::spec {

struct RecordedModel {
    std::string model;
    std::string dtype;
    int context = 0; // positions
    // Of a draft head: tokens that it drafts at most, 0 for any number.
    std::optional<int> head_tokens = std::nullopt;

    bool is_head() const { return head_tokens.has_value(); }
};

// What all texts of a recording have in common.
struct RecordingHead {
    RecordedModel target;
    std::vector<RecordedModel> drafts;
    bool noisy = false; // gumbel; else greedy
    SamplingOptions sampling;
    int max_draft_tokens = 15;      // the longest chain that can be replayed
    std::vector<std::string> trees; // shapes whose rows are recorded, as --tree has them
    int tree_children = 0;          // of each of these rows, at most
    int vocab_size = 0;
    int max_positions = 0; // of the target
    std::vector<TokenId> eos_tokens;
    std::string requests = "{}";    // JSON: what was asked of each text beside its sampling: bans, ends, chat
    std::string input;              // file of prompts
    std::string environment = "{}"; // JSON
    std::string collectives = "[]"; // JSON
    std::vector<Costs> costs;       // of each draft with the target

    void add_tree(const TreeOptions& tree);
};

// What one draft proposes along a text. Place i is the i-th new token; [places] unless said otherwise.
struct DraftRecord {
    static constexpr std::size_t kTop = 8;

    std::vector<TokenId> token; // with the true text before it; -1: every token is banned
    std::vector<float> entropy; // nats
    std::vector<float> probability;
    std::vector<float> log_probability; // of the text's token
    std::vector<float> cross_entropy;   // nats
    std::vector<float> overlap;
    std::vector<float> margin;
    std::vector<std::int32_t> rank; // of the text's token, from 0
    std::vector<TokenId> top_token; // [places][kTop]
    std::vector<float> top_log_probability;

    // Of each place, in order, where `token` is not the text's: how many tokens the draft goes on with, and these. Of a
    // head, of each place: behind the first token it drafts from states of its own, whatever the text is.
    std::vector<std::int32_t> astray_length;
    std::vector<TokenId> astray_token;
    std::vector<float> astray_entropy;
    std::vector<float> astray_probability;
    std::vector<float> astray_margin; // empty in older recordings, whose replays know of no margins then

    // Rows that trees read, [rows]: of the places, then others, each behind a token of an earlier row
    // (recorded_trees.h), of a head also where the text has that token. Empty where no trees were recorded.
    std::vector<std::int32_t> tree_parent; // that row; -1: of a place
    std::vector<TokenId> tree_behind;      // that token; -1: of a place
    std::vector<std::int32_t> tree_children;
    std::vector<float> tree_entropy;        // nats
    std::vector<float> tree_ranked_entropy; // of the distribution that siblings are ranked by
    // [all children], row by row, the best first.
    std::vector<TokenId> tree_token;
    std::vector<float> tree_probability;
    std::vector<float> tree_ranked_probability;

    std::size_t places() const { return token.size(); }
    bool has_margins() const { return astray_margin.size() == astray_token.size(); }
};

struct TextRecord {
    std::string id = "null"; // compact JSON
    int new_tokens = 0;      // places that are the text's; the others lie beyond a stop string
    FinishReason finish_reason = FinishReason::length;
    int max_new_tokens = 0;
    bool ignore_eos = false;
    std::uint64_t seed = 0;
    double temperature = 0;
    std::vector<std::string> pieces; // [new_tokens]
    // Of the prompt's tokens and of mismatching drafted ones, for people: written, never read back.
    std::map<TokenId, std::string> token_texts;

    std::vector<TokenId> prompt;
    std::vector<TokenId> token;        // [places], as all that follows
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
    std::uint64_t whole_bytes = 0; // of the file; what follows is a torn block

    std::vector<const TextRecord*> texts() const;
};

// Blocks of the file.
std::string pack(const RecordingHead& head);
// The first field in which recordings of these heads cannot be one, with both values as JSON, of long ones the
// beginning; none: they can. They may differ in where they come from, what was measured, and the file of prompts.
struct HeadDifference {
    std::string field; // "sampling.temperature"
    std::string a, b;
};
std::optional<HeadDifference> first_difference(const RecordingHead& a, const RecordingHead& b);
std::string pack(const RecordedLine& line);

// Throws std::runtime_error naming file, block and what is wrong with it; a torn last block is no error where
// `may_be_torn`.
Recording read_recording(const std::string& file, bool may_be_torn = false);

} // namespace entrodraft::spec
