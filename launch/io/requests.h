// Turns input lines into requests, or into messages that say what is wrong with them.
//
// A line is {"id": any, "prompt": "text"}, {"id": any, "messages": [{"role", "content"}..]} (with tools and
// chat_template_kwargs) or {"id": any, "prompt_token_ids": [..]}. It may override max_new_tokens, stop, the options of
// sampling, penalties and banned tokens. Line numbers count from 1; blank lines count but request nothing. Other fields
// are the user's own and go to the result, except fields that ask for something that a line cannot have
// (field_names.cpp). Instead, all lines may be requests of OpenAI's API (openai_batch.h). Called by all commands that
// read prompts, on the coordinator.
#pragma once

#include "launch/cli/options.h"
#include "launch/io/json_line.h"
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

// A line that cannot be served, with the reason.
struct BadLine {
    std::string id = "null";          // compact JSON
    std::optional<std::int64_t> line; // from 1, like missing ids; only if no id could be read
    std::string error;
    bool is_openai = false; // a line of a batch file of OpenAI's API
};

using InputItem = std::variant<spec::Request, BadLine>;

// Returns the id of an item, as compact JSON.
const std::string& id_of(const InputItem& item);
// Returns the hash of an id: the sequence key of a request, which --resume compares, too.
std::uint64_t hash_of_id(const std::string& id, std::uint64_t seed = 0);

// The limits for prompts.
struct PromptLimits {
    // Encodes valid UTF-8, with special tokens. Empty, like encode_chat, if the model has no tokenizer.
    std::function<std::vector<spec::TokenId>(std::string_view)> encode;
    // Encodes a conversation by its template, which writes its own special tokens. Throws with the reason.
    std::function<std::vector<spec::TokenId>(const model::Conversation&)> encode_chat;
    int vocab_size = 0;
    int max_positions = 0;
    // For a target with an encoder, lines give a source. These are the limits of its encoder and the tokens that the
    // decoder's text begins with. `encode_decoder_prompt` encodes text that follows these tokens, without special
    // tokens.
    spec::SourceLimits source;
    std::vector<spec::TokenId> decoder_start;
    std::function<std::vector<spec::TokenId>(std::string_view)> encode_decoder_prompt;
};

// Parses one line, the `number`-th from 1. With format `found`, the line decides alone. Never throws on bad content.
InputItem parse_request(const Line& line, std::int64_t number, const RequestDefaults& defaults,
                        const PromptLimits& limits);

// Parses a body of OpenAI's API, whose large integers are kept (keep_large_integers()). The request has sequence key 0
// and id null. Never throws on bad content.
InputItem parse_openai_body(spec::ResponseFormat response, const Json& body, const RequestDefaults& defaults,
                            const PromptLimits& limits);
// The fields of a line or a body whose values go to chat templates.
extern const std::vector<std::string> kTemplateFields;

// Returns a request with the run's defaults, before its line is read.
spec::Request request_like(const RequestDefaults& defaults);

// Returns the request of --prompt: sequence key 0, id null.
InputItem request_of_prompt(const std::string& prompt, const RequestDefaults& defaults, const PromptLimits& limits);

// Reads a file's items in order. Repeated ids are bad lines.
class RequestReader {
  public:
    // Opens the file; throws as LineReader does.
    RequestReader(const std::string& file, const RequestDefaults& defaults, PromptLimits limits = {})
        : lines_(file), defaults_(defaults), limits_(std::move(limits)) {}
    // Sets the limits if the file was opened before the models. Must run before the first next() and keep().
    void set_limits(PromptLimits limits) { limits_ = std::move(limits); }
    // Returns nothing if LineReader::next() has nothing. Throws std::runtime_error if the file cannot be read.
    std::optional<InputItem> next();
    // From here on the file seems to hold only the shard's lines; must run before the first next(). The lines keep
    // their numbers, and the ids of earlier lines count as used. The items of all shards together are then those of the
    // whole file. Reads the whole file once. Throws std::runtime_error if it is not a plain file or cannot be read.
    void keep(const InputShard& shard);
    // Returns the share that has been read, from 0 to 1; -1 if it cannot be known.
    double fraction() const;
    LineReader& lines() { return lines_; }
    std::int64_t last_number() const { return number_; }   // number of the last item's line
    std::uint64_t last_hash() const { return line_hash_; } // hash of that line's text, without blanks at its end
    bool any_samples() const { return any_samples_; }      // true if a request so far has a temperature above 0

  private:
    void find_format(const Line& line);
    bool note_id(const std::string& id);

    LineReader lines_;
    RequestDefaults defaults_;
    PromptLimits limits_;
    std::int64_t number_ = 0; // number of the last line read, from 1
    std::uint64_t line_hash_ = 0;
    bool any_samples_ = false;
    std::int64_t first_ = 0;                                 // number of lines before the shard
    std::optional<std::int64_t> end_;                        // number of the shard's last line
    std::set<std::pair<std::uint64_t, std::uint64_t>> seen_; // two hashes of each id: 16 bytes, for ids of any length
};

// Reads the prompts of a file, at most `max_prompts`; 0: all. All must be good. Throws std::runtime_error naming the
// file and its first bad line.
std::vector<spec::Request> read_all_prompts(const std::string& file, const RequestDefaults& defaults, int max_prompts,
                                            const PromptLimits& limits);

} // namespace entrodraft::launch
