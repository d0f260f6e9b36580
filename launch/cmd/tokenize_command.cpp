// entrodraft tokenize: turns text into token ids and back, with the tokenizer of a checkpoint. Needs no weights.
#include "launch/cli/command_options.h"
#include "launch/cli/command_pages.h"
#include "launch/cli/options.h"
#include "launch/io/chat.h"
#include "launch/io/line_reader.h"
#include "launch/io/progress.h"
#include "launch/io/results.h"
#include "launch/start/failure.h"
#include "launch/start/model_directory.h"
#include "model/files/bad_file.h"
#include "model/files/json_object.h"
#include "model/text/tokenizer/tokenizer.h"

#include <climits>
#include <fmt/format.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

namespace entrodraft::launch {

namespace {

struct Text {
    std::string directory;
    model::Tokenizer tokenizer;
    std::optional<Chat> chat = {}; // opened when a line has messages

    std::vector<model::TokenId> encode(const model::Conversation& conversation) {
        if (!chat) chat = open_chat(directory, {});
        return tokenizer.encode(chat->render(conversation), false);
    }
};

// Returns the output line of an input line. Throws with the reason if the line cannot be served.
Json convert(const Json& line, Text& of, const TokenizeOptions& options) {
    const model::JsonObject object(line, "");
    const model::Tokenizer& tokenizer = of.tokenizer;
    if (!options.decode && line.contains("messages"))
        return {{"token_ids", of.encode(conversation_of(line, std::nullopt))}};
    if (!options.decode) return {{"token_ids", tokenizer.encode(object.text("text"), options.add_special_tokens)}};
    std::vector<model::TokenId> ids;
    for (const Json& id : object.list("token_ids", "an array of token ids")) {
        if (!id.is_number_unsigned() || id.get<std::uint64_t>() > INT_MAX)
            throw std::runtime_error(fmt::format("token_ids[{}] is not a token id", ids.size()));
        ids.push_back(id.get<model::TokenId>());
    }
    return {{"text", tokenizer.decode(ids, options.skip_special_tokens)}};
}

std::string line_of(const Line& line, std::int64_t number, Text& of, const TokenizeOptions& options, bool& failed) {
    BadLine bad;
    bad.line = number;
    try {
        if (line.too_long) throw std::runtime_error("line is too long");
        const Json object = parse_json_line(line.text);
        bad.id = id_in(line.text, object, number);
        bad.line.reset();
        return "{\"id\":" + bad.id + "," + compact(convert(object, of, options)).substr(1);
    } catch (const std::exception& error) {
        failed = true;
        bad.error = error.what();
        return error_line(bad);
    }
}

// Shows a line for each token to a person at a terminal: its id, its spelling in the file, and its text.
void show(const model::Tokenizer& tokenizer, const std::vector<model::TokenId>& ids) {
    for (const model::TokenId id : ids) {
        const std::string shown = compact(Json(tokenizer.token_bytes(id))); // bytes of half a character become U+FFFD
        log_line(fmt::format("{:>8}  {}  {}{}", id, model::in_quotes(tokenizer.token(id)), shown,
                             tokenizer.is_special(id) ? "  special" : ""));
    }
}

ExitCode tokenize(const TokenizeOptions& options) {
    const std::string directory = resolve_model_directory(options.model, "--model");
    Text of = {directory, model::Tokenizer::open(directory)};
    ResultWriter writer("-", Existing::refuse);
    if (options.text) {
        const auto ids = of.tokenizer.encode(*options.text, options.add_special_tokens);
        if (isatty(STDERR_FILENO) == 1) show(of.tokenizer, ids);
        writer.write_text(compact(Json(ids)) + "\n");
        return kAllServed;
    }
    LineReader lines(options.input);
    bool failed = false;
    for (std::int64_t number = 1;; ++number) {
        const auto line = lines.next();
        if (!line) break;
        if (!line->too_long && line->text.find_first_not_of(" \t\r") == std::string::npos) continue;
        writer.write_text(line_of(*line, number, of, options, failed) + "\n");
    }
    return failed ? kSomeLinesFailed : kAllServed;
}

} // namespace

int run_tokenize(dist::Session& session, const Arguments& arguments) {
    return run_on_first_rank(session, arguments, page_of("tokenize"), tokenize);
}

} // namespace entrodraft::launch
