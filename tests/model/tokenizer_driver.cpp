// Runs a Tokenizer over lines of JSON, for tokenizer_differential.py and by hand; not a test, not installed.
// tokenizer_driver DIR [special|source]: a string gives {"ids", "text", "streamed"}; a list of ids gives the text with
// and without special tokens. tokenizer_driver DIR time FILE: seconds to open, MB/s to encode and decode.
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/text/tokenizer/tokenizer.h"

using entrodraft::model::StreamDecoder;
using entrodraft::model::TokenId;
using entrodraft::model::Tokenizer;
using nlohmann::json;

static double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

static std::string stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip) {
    StreamDecoder decoder(tokenizer, skip);
    std::string text;
    for (const TokenId id : ids)
        text += decoder.push(id);
    return text + decoder.finish();
}

static int time_file(const std::string& directory, const std::string& file) {
    auto start = std::chrono::steady_clock::now();
    const Tokenizer tokenizer = Tokenizer::open(directory);
    const double open_s = seconds_since(start);
    std::ifstream in(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    double encode_s = 1e9, decode_s = 1e9;
    std::vector<TokenId> ids;
    for (int i = 0; i < 5; ++i) {
        start = std::chrono::steady_clock::now();
        ids = tokenizer.encode(text, false);
        encode_s = std::min(encode_s, seconds_since(start));
        start = std::chrono::steady_clock::now();
        const bool same = tokenizer.decode(ids, false) == text;
        decode_s = std::min(decode_s, seconds_since(start));
        if (!same && i == 0) std::printf("decoded text differs (expected where a normalizer changes it)\n");
    }
    const double megabytes = static_cast<double>(text.size()) / 1e6;
    std::printf("open %.3f s, %zu tokens, best of 5: encode %.1f MB/s, decode %.1f MB/s\n", open_s, ids.size(),
                megabytes / encode_s, megabytes / decode_s);
    return 0;
}

int main(int argc, char** argv) {
    try {
        const std::vector<std::string> arguments(argv + 1, argv + argc);
        if (arguments.size() == 3 && arguments[1] == "time") return time_file(arguments[0], arguments[2]);
        const bool of_source = arguments.size() > 1 && arguments[1] == "source";
        const Tokenizer tokenizer =
            of_source ? Tokenizer::open_source(arguments.at(0)).value() : Tokenizer::open(arguments.at(0));
        const bool special = of_source || (arguments.size() > 1 && arguments[1] == "special");
        for (std::string line; std::getline(std::cin, line);) {
            const json request = json::parse(line);
            json reply;
            if (request.is_string()) {
                const auto ids = tokenizer.encode(request.get_ref<const std::string&>(), special);
                reply = {
                    {"ids", ids}, {"text", tokenizer.decode(ids, false)}, {"streamed", stream(tokenizer, ids, false)}};
            } else {
                const auto ids = request.get<std::vector<TokenId>>();
                reply = {{"text", tokenizer.decode(ids, false)},
                         {"plain", tokenizer.decode(ids, true)},
                         {"streamed", stream(tokenizer, ids, false)},
                         {"plain_streamed", stream(tokenizer, ids, true)}};
            }
            std::cout << reply.dump() << '\n';
        }
        return 0;
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
