// Chat templates as programs: the part of jinja2's language that they use, run in a sandbox like transformers'
// (ImmutableSandboxedEnvironment). A template can access nothing outside the sandbox, and no names that begin with an
// underscore. Steps, depth and size are limited, so that any template ends soon. It does not depend on checkpoints.
// Called by chat_template.cpp.
//
// This is code of our own, because Debian 12 packages no C++ library for this language: we looked for inja, Jinja2Cpp
// and minja.
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

// raise_exception(words): the template's own message.
class RaisedByTemplate final : public TemplateError {
  public:
    using TemplateError::TemplateError;
};

using Variables = std::vector<std::pair<std::string, Value>>;

class Template {
  public:
    // Throws TemplateError with the line where the text is not a template.
    explicit Template(std::string_view source);
    // Returns the text. strftime_now writes `now`. Throws TemplateError with the line, and RaisedByTemplate.
    std::string render(const Variables& variables, const std::tm& now) const;

  private:
    std::shared_ptr<const std::vector<std::unique_ptr<Statement>>> block_;
};

} // namespace entrodraft::model::jinja
