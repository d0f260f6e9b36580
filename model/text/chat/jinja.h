// Chat templates as programs: what they use of jinja2's language, run in a sandbox as transformers runs it
// (ImmutableSandboxedEnvironment). Nothing outside can be reached, names with an underscore in front neither; steps,
// depth and size are limited, so that any template ends soon. Knows nothing of checkpoints; called by
// chat_template.cpp.
//
// Own code, since Debian 12 packages no C++ library of this language: inja, Jinja2Cpp and minja were looked for.
#pragma once

#include "model/text/chat/value.h"

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace entrodraft::model::jinja {

struct Statement;

// raise_exception(words): what the template itself says.
class RaisedByTemplate final : public TemplateError {
  public:
    using TemplateError::TemplateError;
};

using Variables = std::vector<std::pair<std::string, Value>>;

class Template {
  public:
    // Throws TemplateError with the line where the text is no template.
    explicit Template(std::string_view source);
    // The text. `now` is what strftime_now writes. Throws TemplateError with the line, and RaisedByTemplate.
    std::string render(const Variables& variables, const std::tm& now) const;

  private:
    std::shared_ptr<const std::vector<std::unique_ptr<Statement>>> block_;
};

} // namespace entrodraft::model::jinja
