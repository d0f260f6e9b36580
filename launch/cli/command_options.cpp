// Checks that no file to be written is also a file that is read: see command_options.h.
#include "launch/cli/command_options.h"

#include "launch/start/model_directory.h"
#include "launch/start/replaced_file.h"

#include <filesystem>
#include <fmt/format.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace entrodraft::launch {

namespace {

struct NamedFile {
    std::string option; // including the dashes
    std::string name;
};

struct NamedFiles {
    std::vector<NamedFile> written, read, models;
};

bool is_plain_or_new(const std::string& file) {
    std::error_code ignored; // the code that opens the file reports errors
    const auto type = std::filesystem::status(file, ignored).type();
    return type == std::filesystem::file_type::regular || type == std::filesystem::file_type::not_found;
}

NamedFiles named_files(const ParsedOptions& given, const std::vector<OptionGroup>& groups) {
    NamedFiles files;
    for (const OptionGroup& group : groups)
        for (const OptionSpec& option : group.options) {
            const std::string name = "--" + option.name;
            for (const std::string& file : given.texts(option.name)) {
                if (option.is_directory()) files.models.push_back({name, file});
                if (!option.is_file()) continue;
                if (!option.is_written) files.read.push_back({name, file == "-" ? "/dev/stdin" : file});
                if (option.is_written && file != "-" && is_plain_or_new(file)) files.written.push_back({name, file});
            }
        }
    return files;
}

// Returns whether standard output goes to this file. A run would then read its own output.
bool is_standard_output(const std::string& file) {
    struct stat output {};
    struct stat there {};
    return fstat(STDOUT_FILENO, &output) == 0 && S_ISREG(output.st_mode) && stat(file.c_str(), &there) == 0 &&
           output.st_dev == there.st_dev && output.st_ino == there.st_ino;
}

} // namespace

void refuse_output_conflicts(const ParsedOptions& given, const std::vector<OptionGroup>& groups) {
    const NamedFiles files = named_files(given, groups);
    for (const NamedFile& read : files.read)
        if (is_standard_output(read.name))
            throw BadOption(fmt::format("standard output goes to the file of {}, {}; send it to another one",
                                        read.option, read.name));
    for (std::size_t i = 0; i < files.written.size(); ++i) {
        const NamedFile& written = files.written[i];
        const auto refuse_same = [&](const NamedFile& first, const NamedFile& second) {
            if (are_one_file(first.name, second.name))
                throw BadOption(
                    fmt::format("{} and {} are the same file: {}", first.option, second.option, written.name));
        };
        for (const NamedFile& read : files.read)
            refuse_same(written, read);
        for (std::size_t j = 0; j < i; ++j)
            refuse_same(files.written[j], written);
        for (const NamedFile& model : files.models)
            for (const std::string& part : files_of_model(model.name))
                if (are_one_file(written.name, part))
                    throw BadOption(fmt::format("{} {} is a part of {} {}; name another file", written.option,
                                                written.name, model.option, model.name));
    }
}

} // namespace entrodraft::launch
