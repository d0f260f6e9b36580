// Opens a corpus, which the drafter suffix searches in addition to the text. The corpus is a file of build-corpus, or
// text that is indexed while it is read. The loader of drafters calls this.
#pragma once

#include "model/text/tokenizer/tokenizer.h"
#include "spec/draft/lookup_corpus.h"

#include <memory>
#include <string>

namespace entrodraft::launch {

// The name "-" means stdin. Throws model::BadFile, or std::runtime_error naming the file.
std::shared_ptr<const spec::LookupCorpus> open_corpus(const std::string& file, const model::Tokenizer& tokenizer);

} // namespace entrodraft::launch
