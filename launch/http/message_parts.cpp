// Marks and calls in text: see message_parts.h.
#include "launch/http/message_parts.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace entrodraft::launch {

namespace {

constexpr std::string_view kThink = "<think>", kThought = "</think>";
constexpr std::string_view kCall = "<tool_call>", kCalled = "</tool_call>";
// Words before calls in JSON; they may be special tokens, which text leaves out.
constexpr std::string_view kBeforeJson[] = {"<|python_tag|>", "[TOOL_CALLS]"};
constexpr std::string_view kBlanks = " \t\r\n";

std::string_view without_blanks(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// Returns the call that an object such as {"name", "arguments"} is; nothing if it is none of a known tool.
std::optional<ToolCall> call_of(const Json& object, const MessageForm& form) {
    if (!object.is_object() || !object.contains("name") || !object["name"].is_string()) return std::nullopt;
    const std::string name = object["name"].get<std::string>();
    if (std::ranges::count(form.tool_names, name) == 0) return std::nullopt;
    for (const char* field : {"arguments", "parameters"})
        if (object.contains(field))
            return ToolCall{name,
                            object[field].is_string() ? object[field].get<std::string>() : compact(object[field])};
    return ToolCall{name, "{}"};
}

// Adds the calls of a JSON object, or of a list of them. Returns false if the text is something else.
bool add_calls(std::string_view text, const MessageForm& form, std::vector<ToolCall>& calls) {
    const Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded()) return false;
    std::vector<ToolCall> found;
    for (const Json& object : json.is_array() ? json : Json::array({json})) {
        std::optional<ToolCall> call = call_of(object, form);
        if (!call) return false;
        found.push_back(std::move(*call));
    }
    calls.insert(calls.end(), found.begin(), found.end());
    return !found.empty();
}

// Takes the calls between marks out of the content.
void take_marked_calls(const MessageForm& form, MessageParts& parts) {
    for (std::size_t at = parts.content.find(kCall); at != std::string::npos; at = parts.content.find(kCall, at)) {
        const std::size_t begin = at + kCall.size(),
                          end = std::min(parts.content.find(kCalled, begin), parts.content.size());
        if (!add_calls(without_blanks(std::string_view(parts.content).substr(begin, end - begin)), form, parts.calls)) {
            at = begin; // it stays as text
            continue;
        }
        parts.content.erase(at, std::min(end + kCalled.size(), parts.content.size()) - at);
    }
    if (!parts.calls.empty()) parts.content = without_blanks(parts.content);
}

// Takes content that is JSON as a whole: an object, a list, or objects with semicolons between them.
void take_plain_calls(const MessageForm& form, MessageParts& parts) {
    std::string_view text = without_blanks(parts.content);
    for (const std::string_view word : kBeforeJson)
        if (text.starts_with(word)) text = without_blanks(text.substr(word.size()));
    std::vector<ToolCall> calls;
    if (!add_calls(text, form, calls))
        for (std::size_t begin = 0; begin < text.size();) {
            const std::size_t end = std::min(text.find("};", begin), text.size());
            if (!add_calls(without_blanks(text.substr(begin, end + 1 - begin)), form, calls)) return;
            begin = end + 2;
        }
    if (calls.empty()) return;
    parts.calls = std::move(calls);
    parts.content.clear();
}

void take_calls(const MessageForm& form, MessageParts& parts) {
    if (form.tool_names.empty()) return;
    take_marked_calls(form, parts);
    if (parts.calls.empty()) take_plain_calls(form, parts);
    if (form.one_call && parts.calls.size() > 1) parts.calls.resize(1);
}

// Returns how many letters at the text's end may be the beginning of `mark`.
std::size_t begun_mark(std::string_view text, std::string_view mark) {
    for (std::size_t n = std::min(mark.size() - 1, text.size()); n > 0; --n)
        if (mark.starts_with(text.substr(text.size() - n))) return n;
    return 0;
}

// Returns whether content that begins so may be calls in JSON.
bool may_be_plain_calls(std::string_view text) {
    const std::string_view begun = without_blanks(text);
    if (begun.empty() || begun.starts_with('{') || begun.starts_with('[')) return true;
    return std::ranges::any_of(
        kBeforeJson, [&](std::string_view word) { return begun.starts_with(word) || word.starts_with(begun); });
}

} // namespace

MessageParts parts_of(std::string_view text, const MessageForm& form) {
    MessageStream stream(form);
    MessageParts parts = stream.push(text);
    MessageParts rest = stream.finish();
    rest.reasoning = parts.reasoning + rest.reasoning;
    if (rest.calls.empty())
        rest.content = parts.content + rest.content;
    else
        rest.content = std::string(without_blanks(parts.content + rest.content));
    return rest;
}

MessageParts MessageStream::push(std::string_view piece) {
    MessageParts parts;
    held_ += piece;
    if (!reasons_ && !has_begun_ && !holds_) {
        const std::string_view begun =
            std::string_view(held_).substr(std::min(held_.find_first_not_of(kBlanks), held_.size()));
        if (begun.starts_with(kThink)) {
            reasons_ = skips_blanks_ = true;
            held_ = begun.substr(kThink.size());
        } else if (kThink.starts_with(begun)) {
            return parts; // nothing, or the beginning of the mark
        }
    }
    if (reasons_) {
        const std::size_t end = held_.find(kThought);
        const std::size_t known = end != std::string::npos ? end : held_.size() - begun_mark(held_, kThought);
        const std::size_t last = held_.find_last_not_of(kBlanks, known == 0 ? 0 : known - 1);
        const std::size_t n =
            known == 0 || last == std::string::npos ? 0 : last + 1; // blanks at the end may be the last
        parts.reasoning = held_.substr(0, n);
        if (skips_blanks_) parts.reasoning.erase(0, parts.reasoning.find_first_not_of(kBlanks));
        skips_blanks_ = (skips_blanks_ && parts.reasoning.empty()) || end != std::string::npos;
        held_.erase(0, end != std::string::npos ? end + kThought.size() : n);
        if (end == std::string::npos) return parts;
        reasons_ = false;
    }
    if (skips_blanks_) held_.erase(0, held_.find_first_not_of(kBlanks));
    if (skips_blanks_ && held_.empty()) return parts;
    skips_blanks_ = false;
    if (form_.tool_names.empty()) {
        has_begun_ = has_begun_ || !held_.empty();
        parts.content = std::exchange(held_, "");
        return parts;
    }
    holds_ = holds_ || (!has_begun_ && may_be_plain_calls(held_));
    if (holds_ && !may_be_plain_calls(held_)) holds_ = false; // a beginning that went on as something else
    if (holds_) return parts;
    has_begun_ = true;
    const std::size_t call = held_.find(kCall);
    const std::size_t known = call != std::string::npos ? call : held_.size() - begun_mark(held_, kCall);
    parts.content = held_.substr(0, known);
    held_.erase(0, known);
    return parts;
}

MessageParts MessageStream::finish() {
    MessageParts parts;
    const std::string rest = std::exchange(held_, "");
    if (reasons_)
        parts.reasoning = rest.substr(0, rest.find_last_not_of(kBlanks) + 1);
    else
        parts.content = rest;
    if (!reasons_) take_calls(form_, parts);
    return parts;
}

} // namespace entrodraft::launch
