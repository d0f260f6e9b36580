// Tables, JSON and numbers of reports: see report.h.
#include "launch/io/report.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::launch {

namespace {

std::string cell_of(const Json& value, int decimals, double factor) {
    if (value.is_discarded() || value.is_null()) return "-";
    if (value.is_number_float()) return format_number(value.get<double>() * factor, decimals);
    return value.is_string() ? value.get<std::string>() : compact(value);
}

} // namespace

Column::Column(std::string json_key, std::string table_heading, const Json& figure, int decimals, double factor)
    : Column(std::move(json_key), std::move(table_heading), figure, cell_of(figure, decimals, factor)) {}

Json json_of(const Columns& row) {
    Json json = Json::object();
    for (const Column& column : row)
        if (!column.key.empty() && !column.value.is_discarded()) json[column.key] = column.value;
    return json;
}

Json json_of(const std::vector<Columns>& rows) {
    Json list = Json::array();
    for (const Columns& row : rows)
        list.push_back(json_of(row));
    return list;
}

std::string table_of(const std::vector<Columns>& rows, const std::string& margin) {
    if (rows.empty()) return "";
    std::vector<std::vector<std::string>> table(rows.size() + 1);
    for (const Column& column : rows.front())
        if (!column.heading.empty()) table[0].push_back(column.heading);
    for (std::size_t i = 0; i < rows.size(); ++i)
        for (const Column& column : rows[i])
            if (!column.heading.empty()) table[i + 1].push_back(column.text);
    for (std::vector<std::string>& cells : table)
        cells.front().insert(0, margin);
    return format_table(table);
}

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
    std::vector<std::size_t> widths;
    for (const auto& row : rows)
        for (std::size_t i = 0; i < row.size(); ++i) {
            if (i == widths.size()) widths.push_back(0);
            widths[i] = std::max(widths[i], row[i].size());
        }
    std::string text;
    for (const auto& row : rows) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            const std::string blanks(widths[i] - row[i].size(), ' ');
            text += i == 0 ? row[i] + blanks : "  " + blanks + row[i];
        }
        text += '\n';
    }
    return text;
}

std::string format_number(double value, int decimals) {
    return fmt::format("{:.{}f}", value, decimals);
}

std::string or_dash(double value, int decimals) {
    return value > 0 ? format_number(value, decimals) : "-";
}

std::string format_bytes(std::uint64_t bytes) {
    const auto number = static_cast<double>(bytes);
    if (bytes >= std::uint64_t{1} << 30) return fmt::format("{:.2f} GiB", number / 0x1p30);
    if (bytes >= std::uint64_t{1} << 20) return fmt::format("{:.1f} MiB", number / 0x1p20);
    if (bytes >= std::uint64_t{1} << 10) return fmt::format("{:.1f} KiB", number / 0x1p10);
    return fmt::format("{} bytes", bytes);
}

std::string format_count(std::int64_t count) {
    std::string text = std::to_string(count);
    for (std::size_t at = text.size(); at > 3; at -= 3)
        text.insert(at - 3, ",");
    return text;
}

std::string format_count(std::int64_t count, const std::string& noun) {
    return fmt::format("{} {}{}", format_count(count), noun, count == 1 ? "" : "s");
}

} // namespace entrodraft::launch
