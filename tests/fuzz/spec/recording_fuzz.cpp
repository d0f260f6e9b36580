// A recording. An input that begins with '{' is unpacked blocks with lines "----" between them, which are packed and
// checked here, as no mutation would get past a checksum; any other is the file itself. What can be read is replayed.
#include "tests/fuzz/fuzz_input.h"

#include "spec/replay/recording.h"
#include "spec/replay/simulate.h"

#include <stdexcept>
#include <zlib.h>

using namespace entrodraft;

namespace {

void append_number(std::string& bytes, std::uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8)
        bytes.push_back(static_cast<char>(value >> shift & 0xff));
}

// JSON up to the last '}' of its first line, columns behind it.
std::string packed(std::string_view block) {
    const std::string_view line = block.substr(0, block.find('\n'));
    std::string unpacked;
    append_number(unpacked, static_cast<std::uint32_t>(line.size()));
    unpacked += line;
    if (line.size() < block.size()) unpacked += block.substr(line.size() + 1);
    uLongf length = compressBound(unpacked.size());
    std::string body(length, '\0');
    compress2(reinterpret_cast<Bytef*>(body.data()), &length, reinterpret_cast<const Bytef*>(unpacked.data()),
              unpacked.size(), 1);
    body.resize(length);
    std::string whole = "EDR1";
    append_number(whole, static_cast<std::uint32_t>(body.size()));
    append_number(whole, static_cast<std::uint32_t>(
                             crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()))));
    return whole + body;
}

void replay(const spec::Recording& recording) {
    for (const std::string rule : {"static", "expected-gain"}) {
        spec::ReplaySetting setting;
        setting.rule = spec::StopRuleOptions(rule);
        setting.rule.max_tokens = recording.head.max_draft_tokens;
        setting.ahead = rule == "static" ? 2 : 0;
        try {
            setting.costs = recording.head.costs.at(0);
            spec::Replay one(recording.head, setting);
            for (const spec::TextRecord* text : recording.texts())
                fuzz::use(one.replay(*text));
        } catch (const std::runtime_error&) {
        } catch (const std::logic_error&) { // refused by name: no drafts, a cap that no rule has
        }
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view rest = fuzz::text_of(data, size);
    std::string file;
    if (rest.starts_with('{'))
        while (!rest.empty())
            file += packed(fuzz::next_part(rest));
    else
        file = rest;
    const auto path = fuzz::directory().write("recording.edr", file);
    for (const bool may_be_torn : {false, true}) {
        try {
            replay(spec::read_recording(path.string(), may_be_torn));
        } catch (const std::runtime_error&) { // its contract
        }
    }
    return 0;
}
