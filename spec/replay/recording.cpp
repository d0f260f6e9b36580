// Recordings in memory and in files: see recording.h and docs/formats.md.
#include "spec/replay/recording.h"

#include "model/families/fields.h"
#include "model/files/json_object.h"
#include "spec/protocol/packet.h"
#include "spec/replay/recording_block.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr int kMaxPositions = 1 << 30;

// ---- fields of a block's JSON ----

using Object = model::JsonObject<Json>;

Object object_of(const Json& json) {
    return {json, "field "};
}

double number(const Object& object, const char* name, double least, double most) {
    const Json& value = object.at(name);
    const double given = value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!(given >= least && given <= most))
        model::refuse_value(object.name_of(name), "must be a number that makes sense");
    return given;
}

std::uint64_t seed_of(const Object& object) {
    const Json& value = object.at("seed");
    if (!value.is_number_unsigned()) model::refuse_value("field seed", "must be a whole number");
    return value.get<std::uint64_t>();
}

OrderedJson json_of(const RecordedModel& model) {
    OrderedJson json = {{"model", model.model}, {"dtype", model.dtype}, {"context", model.context}};
    if (model.is_head()) json["head_tokens"] = *model.head_tokens;
    return json;
}

RecordedModel model_of(const Json& json) {
    const Object object = object_of(json);
    RecordedModel model = {object.text("model"), object.text("dtype"), object.integer("context", 1, kMaxPositions)};
    if (json.contains("head_tokens")) model.head_tokens = object.integer("head_tokens", 0, kMaxPositions);
    return model;
}

FinishReason finish_reason_of(const std::string& name) {
    for (const FinishReason reason : {FinishReason::length, FinishReason::eos, FinishReason::stop})
        if (to_string(reason) == name) return reason;
    throw std::runtime_error("finish_reason " + name + " is unknown");
}

RecordingHead head_of(const Json& json) {
    if (!json.contains("kind") || json["kind"] != "recording")
        throw std::runtime_error("it is not the head of a recording");
    const Object object = object_of(json);
    if (object.integer("schema_version", 0, std::numeric_limits<int>::max()) != kVersion)
        throw std::runtime_error(fmt::format("field schema_version must be {}", kVersion));
    RecordingHead head;
    head.target = model_of(object.at("target"));
    for (const Json& draft : object.list("drafts"))
        head.drafts.push_back(model_of(draft));
    const std::string acceptance = object.text("acceptance");
    if (acceptance != "greedy" && acceptance != "gumbel")
        throw std::runtime_error("field acceptance must be greedy or gumbel");
    head.noisy = acceptance == "gumbel";
    const Object sampling = object_of(object.at("sampling"));
    visit_options(head.sampling, [&]<typename T>(const char* name, T& option) {
        if constexpr (std::is_same_v<T, double>)
            option = number(sampling, name, 0, std::string_view(name) == "temperature" ? kMaxTemperature : 1);
        else if constexpr (std::is_same_v<T, int>)
            option = sampling.integer(name, 0, std::numeric_limits<int>::max());
        else
            option = seed_of(sampling);
    });
    head.max_draft_tokens = object.integer("max_draft_tokens", 1, Packet::kMaxDraftTokens);
    if (json.contains("trees")) { // recordings were made without them once
        for (const Json& tree : object.list("trees"))
            head.trees.push_back(model::text_of(tree, "field trees"));
        head.tree_children = object.integer("tree_children", 0, Packet::kMaxDraftTokens);
    }
    head.vocab_size = object.integer("vocab_size", 1, kMaxPositions);
    head.max_positions = object.integer("max_positions", 1, kMaxPositions);
    for (const Json& token : object.list("eos_token_ids"))
        head.eos_tokens.push_back(token.get<TokenId>());
    head.requests = object.at("requests").dump();
    head.input = object.text("input");
    head.environment = object.at("environment").dump();
    head.collectives = object.at("collectives").dump();
    for (const Json& costs : object.list("costs")) {
        head.costs.push_back(costs_of(costs.dump()));
        const auto disturbance = Json::json_pointer("/environment/machine/disturbance");
        if (!costs.contains("machine") && json.contains(disturbance) && json[disturbance].is_string())
            head.costs.back().disturbance = json[disturbance]; // recordings had it there alone once
    }
    if (head.drafts.empty() || head.costs.size() != head.drafts.size())
        throw std::runtime_error("it has no drafts, or costs of another number of them");
    return head;
}

// ---- columns, named once for both ways ----

// Recordings without trees lack the trees' columns, and older ones the margins of chains.
bool may_be_absent(const std::string& column) {
    return column.find(".tree_") != std::string::npos || column.ends_with(".astray_margin");
}

template <typename Text, typename Visit> void each_column(Text& text, const Visit& visit) {
    visit("prompt_token", text.prompt);
    visit("token", text.token);
    visit("target_entropy", text.target_entropy);
    visit("target_log_probability", text.target_log_probability);
    visit("target_margin", text.target_margin);
    for (std::size_t d = 0; d < text.drafts.size(); ++d) {
        auto& draft = text.drafts[d];
        const std::string of = fmt::format("draft.{}.", d);
        visit(of + "token", draft.token);
        visit(of + "entropy", draft.entropy);
        visit(of + "probability", draft.probability);
        visit(of + "log_probability", draft.log_probability);
        visit(of + "cross_entropy", draft.cross_entropy);
        visit(of + "overlap", draft.overlap);
        visit(of + "margin", draft.margin);
        visit(of + "rank", draft.rank);
        visit(of + "top_token", draft.top_token);
        visit(of + "top_log_probability", draft.top_log_probability);
        visit(of + "astray_length", draft.astray_length);
        visit(of + "astray_token", draft.astray_token);
        visit(of + "astray_entropy", draft.astray_entropy);
        visit(of + "astray_probability", draft.astray_probability);
        visit(of + "astray_margin", draft.astray_margin);
        visit(of + "tree_parent", draft.tree_parent);
        visit(of + "tree_behind", draft.tree_behind);
        visit(of + "tree_children", draft.tree_children);
        visit(of + "tree_entropy", draft.tree_entropy);
        visit(of + "tree_ranked_entropy", draft.tree_ranked_entropy);
        visit(of + "tree_token", draft.tree_token);
        visit(of + "tree_probability", draft.tree_probability);
        visit(of + "tree_ranked_probability", draft.tree_ranked_probability);
    }
}

void require(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
}

void check_draft(const DraftRecord& draft, const RecordedModel& model, const TextRecord& text,
                 const RecordingHead& head) {
    const std::size_t n = draft.places();
    require(n <= text.places(), "a draft has more places than the text");
    for (const std::size_t size :
         {draft.entropy.size(), draft.probability.size(), draft.log_probability.size(), draft.cross_entropy.size(),
          draft.overlap.size(), draft.margin.size(), draft.rank.size(), draft.top_token.size() / DraftRecord::kTop,
          draft.top_log_probability.size() / DraftRecord::kTop})
        require(size == n, "columns of a draft have different lengths");
    std::size_t astray = 0, chains = 0;
    for (std::size_t i = 0; i < n; ++i)
        chains += model.is_head() || draft.token[i] != text.token[i] ? 1 : 0;
    require(draft.astray_length.size() == chains, "there are not as many chains as mismatches, or as places of a head");
    for (const std::int32_t length : draft.astray_length) {
        require(length >= 0 && length < head.max_draft_tokens, "a chain is longer than drafts may be");
        astray += static_cast<std::size_t>(length);
    }
    require(draft.astray_token.size() == astray && draft.astray_entropy.size() == astray &&
                draft.astray_probability.size() == astray && (draft.astray_margin.empty() || draft.has_margins()),
            "chains have another number of tokens than their lengths say");
}

void check_trees(const DraftRecord& draft) {
    const std::size_t n = draft.tree_parent.size();
    for (const std::size_t size : {draft.tree_behind.size(), draft.tree_children.size(), draft.tree_entropy.size(),
                                   draft.tree_ranked_entropy.size()})
        require(size == n, "columns of trees have different lengths");
    require(n == 0 || n >= draft.places(), "trees lack rows of places");
    std::size_t children = 0;
    for (std::size_t row = 0; row < n; ++row) {
        const std::int32_t parent = draft.tree_parent[row];
        require(row < draft.places() ? parent == -1 : parent >= 0 && static_cast<std::size_t>(parent) < row,
                "a row of a tree follows none before it");
        require(draft.tree_children[row] >= 0, "a row of a tree has fewer children than none");
        children += static_cast<std::size_t>(draft.tree_children[row]);
    }
    for (const std::size_t size :
         {draft.tree_token.size(), draft.tree_probability.size(), draft.tree_ranked_probability.size()})
        require(size == children, "rows of trees have another number of children than they say");
}

void check(const TextRecord& text, const RecordingHead& head) {
    require(!text.prompt.empty(), "a text has no prompt");
    require(static_cast<std::size_t>(text.new_tokens) <= text.places(), "a text has fewer tokens than it says");
    require(text.pieces.size() == static_cast<std::size_t>(text.new_tokens), "a text has not a piece for each token");
    require(text.places() <= static_cast<std::size_t>(text.max_new_tokens), "a text has more tokens than it may");
    for (const std::size_t size :
         {text.target_entropy.size(), text.target_log_probability.size(), text.target_margin.size()})
        require(size == text.places(), "columns of the target have different lengths");
    for (std::size_t d = 0; d < text.drafts.size(); ++d) {
        check_draft(text.drafts[d], head.drafts[d], text, head);
        check_trees(text.drafts[d]);
    }
}

RecordedLine line_of(const BlockReader& block, const RecordingHead& head) {
    const Json& json = block.json;
    const Object object = object_of(json);
    const std::string kind = object.text("kind"), id = object.at("id").dump();
    if (kind == "error") return RecordedError{id, object.text("error")};
    if (kind != "text") throw std::runtime_error("kind " + kind + " is unknown");
    TextRecord record;
    record.id = id;
    record.new_tokens = object.integer("new_tokens", 0, kMaxPositions);
    record.max_new_tokens = object.integer("max_new_tokens", 0, kMaxPositions);
    record.finish_reason = finish_reason_of(object.text("finish_reason"));
    record.ignore_eos = object.truth("ignore_eos");
    record.seed = seed_of(object);
    record.temperature = number(object, "temperature", 0, kMaxTemperature);
    for (const Json& piece : object.list("pieces"))
        record.pieces.push_back(model::text_of(piece, "a piece of the text"));
    record.drafts.resize(head.drafts.size());
    each_column(record, [&](const std::string& name, auto& values) {
        if (!may_be_absent(name) || block.has(name)) block.read(name, values);
    });
    check(record, head);
    return record;
}

} // namespace

void RecordingHead::add_tree(const TreeOptions& tree) {
    trees.push_back(tree.name);
    tree_children = std::max(tree_children, tree.most_children());
}

std::vector<const TextRecord*> Recording::texts() const {
    std::vector<const TextRecord*> texts;
    for (const RecordedLine& line : lines)
        if (const auto* each = std::get_if<TextRecord>(&line)) texts.push_back(each);
    return texts;
}

namespace {

// All fields but those that may differ between runs of one recording.
OrderedJson lasting_fields(const RecordingHead& head) {
    OrderedJson json;
    json["kind"] = "recording";
    json["schema_version"] = kVersion;
    json["target"] = json_of(head.target);
    for (const RecordedModel& draft : head.drafts)
        json["drafts"].push_back(json_of(draft));
    json["acceptance"] = head.noisy ? "gumbel" : "greedy";
    visit_options(head.sampling, [&](const char* name, const auto& option) { json["sampling"][name] = option; });
    json["max_draft_tokens"] = head.max_draft_tokens;
    json["trees"] = head.trees;
    json["tree_children"] = head.tree_children;
    json["vocab_size"] = head.vocab_size;
    json["max_positions"] = head.max_positions;
    json["eos_token_ids"] = head.eos_tokens;
    json["requests"] = OrderedJson::parse(head.requests);
    return json;
}

std::optional<HeadDifference> first_difference(const std::string& field, const Json& a, const Json& b) {
    if (a == b) return std::nullopt;
    if (a.is_array() && b.is_array() && a.size() == b.size()) {
        for (std::size_t i = 0; i < a.size(); ++i)
            if (auto found = first_difference(fmt::format("{}[{}]", field, i), a[i], b[i])) return found;
    }
    if (!a.is_object() || !b.is_object()) return HeadDifference{field, model::shown(a), model::shown(b)};
    Json names = a;
    names.update(b);
    for (const auto& [name, unused] : names.items())
        if (auto found = first_difference(field.empty() ? name : field + "." + name, a.value(name, Json()),
                                          b.value(name, Json())))
            return found;
    return std::nullopt;
}

} // namespace

std::optional<HeadDifference> first_difference(const RecordingHead& a, const RecordingHead& b) {
    return first_difference("", lasting_fields(a), lasting_fields(b)); // the order of fields does not count
}

std::string pack(const RecordingHead& head) {
    BlockWriter block;
    OrderedJson& json = block.json;
    json = lasting_fields(head);
    json["input"] = head.input;
    json["environment"] = OrderedJson::parse(head.environment);
    json["collectives"] = OrderedJson::parse(head.collectives);
    json["costs"] = OrderedJson::array();
    for (const Costs& costs : head.costs) {
        json["costs"].push_back(OrderedJson::parse(to_json(costs)));
        if (costs.disturbance.empty()) json["costs"].back()["machine"] = OrderedJson::object();
    }
    return block.finish();
}

std::string pack(const RecordedLine& line) {
    BlockWriter block;
    OrderedJson& json = block.json;
    if (const auto* error = std::get_if<RecordedError>(&line)) {
        json["kind"] = "error";
        json["id"] = OrderedJson::parse(error->id);
        json["error"] = error->error;
        return block.finish();
    }
    const TextRecord& record = std::get<TextRecord>(line);
    json["kind"] = "text";
    json["id"] = OrderedJson::parse(record.id);
    json["prompt_tokens"] = record.prompt.size();
    json["new_tokens"] = record.new_tokens;
    json["finish_reason"] = to_string(record.finish_reason);
    json["max_new_tokens"] = record.max_new_tokens;
    json["ignore_eos"] = record.ignore_eos;
    json["seed"] = record.seed;
    json["temperature"] = record.temperature;
    json["pieces"] = record.pieces;
    for (const auto& [token, of_token] : record.token_texts)
        json["token_texts"][std::to_string(token)] = of_token;
    each_column(record, [&](const std::string& name, const auto& values) {
        if (!may_be_absent(name) || !values.empty()) block.add(name, values);
    });
    return block.finish();
}

Recording read_recording(const std::string& file, bool may_be_torn) {
    std::error_code ignored; // if this fails, so does opening the file, which gives the reason
    const auto status = std::filesystem::status(file, ignored);
    if (is_directory(status)) throw std::runtime_error(file + ": is a directory; name a file");
    if (is_other(status) && status.type() != std::filesystem::file_type::unknown)
        throw std::runtime_error(file + ": is not a regular file; name a recording");
    std::ifstream in(file, std::ios::binary);
    if (!in) throw std::runtime_error(file + ": cannot be opened: " + std::strerror(errno));
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    if (in.bad()) throw std::runtime_error(file + ": cannot be read");
    Recording recording;
    const std::string_view all = bytes;
    for (std::size_t number = 0; recording.whole_bytes < all.size(); ++number) {
        try {
            std::size_t length = 0;
            const BlockReader block(all.substr(recording.whole_bytes), length);
            if (length == 0 && holds_block(all.substr(recording.whole_bytes + 1)))
                throw std::runtime_error("its length is damaged: whole blocks follow it");
            if (length == 0 && may_be_torn) return recording;
            if (length == 0) throw std::runtime_error("it is cut off; record --resume goes on from there");
            if (number == 0)
                recording.head = head_of(block.json);
            else
                recording.lines.push_back(line_of(block, recording.head));
            recording.whole_bytes += length;
        } catch (const std::exception& error) {
            throw std::runtime_error(fmt::format("{} block {}: {}{}", file, number, error.what(),
                                                 number == 0 ? "; entrodraft record makes recordings" : ""));
        }
    }
    if (recording.whole_bytes == 0 && !may_be_torn) throw std::runtime_error(file + ": is empty, not a recording");
    return recording;
}

} // namespace entrodraft::spec
