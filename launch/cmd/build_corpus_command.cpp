// entrodraft build-corpus: makes one indexed file for the drafter suffix from texts, results of earlier runs and
// earlier corpora. Needs no weights.
#include "launch/cli/command_options.h"
#include "launch/cli/command_pages.h"
#include "launch/cli/options.h"
#include "launch/io/json_line.h"
#include "launch/io/line_reader.h"
#include "launch/io/progress.h"
#include "launch/load/text_tokens.h"
#include "launch/start/counted.h"
#include "launch/start/model_directory.h"
#include "launch/start/replaced_file.h"
#include "model/files/json_object.h"
#include "spec/draft/lookup_corpus.h"

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>
#include <string>
#include <vector>

namespace entrodraft::launch {

namespace {

// The texts in sequence, each with an end mark.
class CorpusTexts {
  public:
    explicit CorpusTexts(const model::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

    // Adds a text, or the texts of a corpus.
    void add_file(const std::string& file) {
        if (!spec::LookupCorpus::is_corpus_file(file)) return add(tokenize_file(file, tokenizer_));
        const auto corpus = spec::LookupCorpus::open(file, tokenizer_.size(), tokenizer_.fingerprint());
        add(corpus->tokens());
    }

    // Adds the tokens of each text that `generate` wrote, without its prompt. Error lines have none.
    void add_results(const std::string& file) {
        LineReader lines(file);
        for (std::int64_t number = 1;; ++number) {
            const auto line = lines.next();
            if (!line) break;
            if (line->text.empty() && !line->too_long) continue;
            try {
                if (line->too_long) throw std::runtime_error("is too long");
                add_result(parse_json_line(line->text));
            } catch (const std::runtime_error& error) {
                throw std::runtime_error(fmt::format("{} line {}: {}", lines.file(), number, error.what()));
            }
        }
        if (lines.interrupted()) throw std::runtime_error(lines.file() + ": reading was interrupted");
    }

    std::int64_t n_texts() const { return n_texts_; }
    std::vector<model::TokenId> take() { return std::move(tokens_); }

  private:
    void add(std::span<const model::TokenId> tokens) {
        if (tokens.empty()) return;
        if (tokens.size() >= spec::LookupCorpus::kMaxTokens - tokens_.size())
            throw std::runtime_error(fmt::format("a corpus holds at most {} tokens; build it from less text",
                                                 spec::LookupCorpus::kMaxTokens));
        const model::TokenId end = tokenizer_.size();
        const bool has_end = tokens.back() == end;
        tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
        if (!has_end) tokens_.push_back(end);
        n_texts_ += std::ranges::count(tokens, end) + (has_end ? 0 : 1);
    }

    void add_result(const Json& line) {
        if (line.contains("error") && !line.contains("token_ids")) return;
        if (!line.contains("sequences")) return add_tokens(line);
        for (const Json& sequence : model::array_of(line["sequences"], "sequences"))
            add_tokens(sequence);
    }

    void add_tokens(const Json& of_text) {
        if (!of_text.is_object() || !of_text.contains("token_ids"))
            throw std::runtime_error("has no token_ids, which results of generate have; give other text by --input");
        std::vector<model::TokenId> tokens;
        for (const Json& token : model::array_of(of_text["token_ids"], "token_ids"))
            tokens.push_back(
                static_cast<model::TokenId>(model::integer_of(token, "a token id", 0, tokenizer_.size() - 1)));
        add(tokens);
    }

    const model::Tokenizer& tokenizer_;
    std::vector<model::TokenId> tokens_;
    std::int64_t n_texts_ = 0;
};

ExitCode build_corpus(const BuildCorpusOptions& options) {
    require_replaceable(options.output);
    const auto tokenizer = model::Tokenizer::open(resolve_model_directory(options.model, "--model"));
    CorpusTexts texts(tokenizer);
    for (const std::string& file : options.inputs)
        texts.add_file(file);
    for (const std::string& file : options.results)
        texts.add_results(file);
    if (texts.n_texts() == 0) throw std::runtime_error("the files that are named hold no text");
    const spec::LookupCorpus corpus(texts.take(), tokenizer.size());
    ReplacedFile file(options.output);
    corpus.write(tokenizer.fingerprint(), [&](std::span<const std::byte> bytes) { file.write(bytes); });
    file.commit();
    if (!options.quiet)
        log_line(fmt::format("{}: {}, {}, {} bytes", options.output, counted(texts.n_texts(), "text"),
                             counted(std::ssize(corpus.tokens()) - texts.n_texts(), "token"), corpus.file_bytes()));
    return kAllServed;
}

} // namespace

int run_build_corpus(dist::Session& session, const Arguments& arguments) {
    return run_on_first_rank(session, arguments, page_of("build-corpus"), build_corpus);
}

} // namespace entrodraft::launch
