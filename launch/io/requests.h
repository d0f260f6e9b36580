// Input lines turned into requests, or into what is wrong with them.
//
// A line is {"id": any, "prompt": "text"}, {"id": any, "messages": [{"role", "content"}..]} (with tools and
// chat_template_kwargs) or {"id": any, "prompt_token_ids": [..]}, and may override max_new_tokens, stop, the options of
// sampling, penalties and banned tokens. Lines count from 1; blank lines count but ask for nothing. Other fields are
// the user's own and go to the result, but for those that ask for what a line cannot have (field_names.cpp). Or all
// lines are requests of OpenAI's API (openai_batch.h). Called by all commands that read prompts, on the coordinator.
#pragma once

#include "launch/cli/options.h"
#include "launch/io/line_reader.h"
#include "model/text/chat/chat_template.h"
#include "spec/protocol/request.h"

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace entrodraft::launch {

// A line that cannot be served, and why.
struct BadLine {
    std::string id = "null";          // compact JSON
    std::optional<std::int64_t> line; // from 1 as missing ids are; only where no id could be read
    std::string error;
    bool is_openai = false; // of a batch file of OpenAI's API
};

using InputItem = std::variant<spec::Request, BadLine>;

// The id of an item, as compact JSON.
const std::string& id_of(const InputItem& item);
// Its hash: the sequence key of a request, and what --resume compares.
std::uint64_t hash_of_id(const std::string& id, std::uint64_t seed = 0);

// What a prompt is measured by.
struct PromptLimits {
    // Of valid UTF-8, special tokens included. Empty, as encode_chat then is: the model has no tokenizer.
    std::function<std::vector<spec::TokenId>(std::string_view)> encode;
    // Of a conversation, by its template, which brings its special tokens itself. Throws with the reason.
    std::function<std::vector<spec::TokenId>(const model::Conversation&)> encode_chat;
    int vocab_size = 0;
    int max_positions = 0;
    // Of a target with an encoder, whose lines give a source: what its encoder takes, and what the decoder's text
    // begins with. Then `encode_decoder_prompt` is of text that goes behind that, without special tokens.
    spec::SourceLimits source;
    std::vector<spec::TokenId> decoder_start;
    std::function<std::vector<spec::TokenId>(std::string_view)> encode_decoder_prompt;
};

// One line, the `number`-th from 1; of format `found` what it is alone. Never throws on bad content.
InputItem parse_request(const Line& line, std::int64_t number, const RequestDefaults& defaults,
                        const PromptLimits& limits);

// A request before its line is read: it has the run's defaults.
spec::Request request_like(const RequestDefaults& defaults);

// The request of --prompt: sequence key 0, id null.
InputItem request_of_prompt(const std::string& prompt, const RequestDefaults& defaults, const PromptLimits& limits);

// A file's items in order. Repeated ids are bad lines.
class RequestReader {
  public:
    // Opens the file; throws as LineReader does.
    RequestReader(const std::string& file, const RequestDefaults& defaults, PromptLimits limits = {})
        : lines_(file), defaults_(defaults), limits_(std::move(limits)) {}
    // Before the first next() and keep(), where the file was opened before the models.
    void set_limits(PromptLimits limits) { limits_ = std::move(limits); }
    // Nothing where LineReader::next() has nothing. Throws std::runtime_error when the file cannot be read.
    std::optional<InputItem> next();
    // Before the first next(): from here on the file seems to hold the shard's lines alone. They keep their numbers,
    // and the ids of the lines before them count as used, so that the pieces' items, put together, are those of the
    // whole file. Reads all of it once. Throws std::runtime_error when it is not a plain file or cannot be read.
    void keep(const InputShard& shard);
    // How much has been read, from 0 to 1; -1 where that cannot be known.
    double fraction() const;
    LineReader& lines() { return lines_; }
    std::int64_t last_number() const { return number_; }   // of the last item's line
    std::uint64_t last_hash() const { return line_hash_; } // of the text of that line, without blanks at its end
    bool any_samples() const { return any_samples_; }      // whether a request so far has a temperature above 0

  private:
    void find_format(const Line& line);
    bool note_id(const std::string& id);

    LineReader lines_;
    RequestDefaults defaults_;
    PromptLimits limits_;
    std::int64_t number_ = 0; // of the last line read, from 1
    std::uint64_t line_hash_ = 0;
    bool any_samples_ = false;
    std::int64_t first_ = 0;                                 // lines before the shard
    std::optional<std::int64_t> end_;                        // the number of the shard's last line
    std::set<std::pair<std::uint64_t, std::uint64_t>> seen_; // two hashes of each id: 16 bytes, however long the id
};

// Prompts of a file that must all be good ones; at most so many, 0: all. Throws std::runtime_error naming the file and
// its first bad line.
std::vector<spec::Request> read_all_prompts(const std::string& file, const RequestDefaults& defaults, int max_prompts,
                                            const PromptLimits& limits);

} // namespace entrodraft::launch
