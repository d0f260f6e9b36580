// Opens corpora: see corpus.h.
#include "launch/load/corpus.h"

#include "launch/load/text_tokens.h"

namespace entrodraft::launch {

std::shared_ptr<const spec::LookupCorpus> open_corpus(const std::string& file, const model::Tokenizer& tokenizer) {
    if (spec::LookupCorpus::is_corpus_file(file))
        return spec::LookupCorpus::open(file, tokenizer.size(), tokenizer.fingerprint());
    return std::make_shared<const spec::LookupCorpus>(tokenize_file(file, tokenizer), tokenizer.size());
}

} // namespace entrodraft::launch
