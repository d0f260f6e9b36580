// entrodraft build-table: counts unigrams and bigrams of a text, for drafting without a model. Needs no weights.
#include "launch/cli/command_options.h"
#include "launch/cli/command_pages.h"
#include "launch/cli/options.h"
#include "launch/io/line_reader.h"
#include "launch/io/progress.h"
#include "launch/load/text_tokens.h"
#include "launch/start/counted.h"
#include "launch/start/failure.h"
#include "launch/start/model_directory.h"
#include "launch/start/replaced_file.h"
#include "model/text/tokenizer/tokenizer.h"
#include "spec/draft/token_table.h"

#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

spec::TokenCounts count(LineReader& lines, const model::Tokenizer& tokenizer, bool quiet) {
    spec::TokenCounter counter(tokenizer.size(), tokenizer.fingerprint());
    StatusLine status(quiet);
    tokenize_blocks(lines, tokenizer, [&](std::span<const model::TokenId> tokens) {
        counter.add(tokens);
        const double size = static_cast<double>(lines.file_bytes());
        status.update(size > 0 ? static_cast<double>(lines.bytes_read()) / size : -1,
                      [&](double) { return counted(counter.total(), "token"); });
    });
    if (counter.total() == 0) throw std::runtime_error(lines.file() + ": is empty; give a file with some text");
    return counter.take();
}

ExitCode build_table(const BuildTableOptions& options) {
    require_replaceable(options.output); // predictable failures come before the work
    LineReader lines(options.input, BlockBytes{}.most);
    const auto tokenizer = model::Tokenizer::open(resolve_model_directory(options.model, "--model"));
    const spec::TokenCounts counts = count(lines, tokenizer, options.quiet);
    ReplacedFile file(options.output);
    spec::write_token_counts(counts, [&](std::span<const std::byte> bytes) { file.write(bytes); });
    file.commit();
    if (!options.quiet)
        log_line(fmt::format("{}: {}, {}, {} bytes", options.output, counted(counts.total, "token"),
                             counted(std::ssize(counts.followers), "distinct bigram"),
                             spec::token_counts_bytes(counts)));
    return kAllServed;
}

} // namespace

int run_build_table(dist::Session& session, const Arguments& arguments) {
    return run_on_first_rank(session, arguments, page_of("build-table"), build_table);
}

} // namespace entrodraft::launch
