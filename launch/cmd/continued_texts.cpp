// See continued_texts.h.
#include "launch/cmd/continued_texts.h"

#include "launch/io/line_reader.h"
#include "launch/start/failure.h"
#include "model/files/json_object.h"

#include <fmt/format.h>
#include <limits>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

constexpr const char *kNumber = "text", *kTokens = "token_ids";

} // namespace

ContinuedTexts::ContinuedTexts(const std::string& file, const Json& settings, std::size_t n_texts)
    : name_(file), file_(file, Existing::append) {
    read(settings, n_texts);
}

void ContinuedTexts::read(const Json& settings, std::size_t n_texts) {
    LineReader lines(name_);
    std::uint64_t whole_bytes = 0;
    for (std::int64_t number = 1;; ++number) {
        const std::optional<Line> line = lines.next();
        if (!line || !line->terminated) break; // the text of a torn line is continued anew
        whole_bytes += line->text.size() + 1;
        Json json;
        try {
            json = parse_json_line(line->text);
        } catch (const std::exception& error) {
            throw std::runtime_error(
                fmt::format("{} line {}: {}; remove the file to continue all texts anew", name_, number, error.what()));
        }
        if (number == 1) {
            refuse_if(json != settings,
                      fmt::format("--resume: {} was begun with other options or prompts ({}); give those", name_,
                                  compact(json)));
            continue;
        }
        const model::JsonObject text(json, fmt::format("{} line {}: field ", name_, number));
        const auto at = text.integer(kNumber, std::int64_t{0}, static_cast<std::int64_t>(n_texts) - 1);
        std::vector<spec::TokenId>& tokens = found_[at];
        tokens.clear();
        for (const Json& token : text.list(kTokens))
            tokens.push_back(static_cast<spec::TokenId>(
                model::integer_of(token, text.name_of(kTokens), 0, std::numeric_limits<spec::TokenId>::max())));
    }
    if (lines.interrupted()) throw std::runtime_error(name_ + ": reading was interrupted");
    file_.cut_to(whole_bytes);
    if (whole_bytes == 0) file_.write_text(compact(settings) + "\n");
}

void ContinuedTexts::add(std::size_t number, const std::vector<spec::TokenId>& tokens) {
    file_.write_text(compact(Json{{kNumber, number}, {kTokens, tokens}}) + "\n");
}

} // namespace entrodraft::launch
