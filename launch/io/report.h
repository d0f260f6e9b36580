// Reports are rows of figures. Each figure is declared once. It is shown in aligned columns for people, and as JSON
// with all digits for programs. Pure. Called by every command that prints a table.
#pragma once

#include "launch/io/json_line.h"
#include "launch/start/counted.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace entrodraft::launch {

// A figure of a row with its two names. If a name is empty, that form lacks the figure.
struct Column {
    std::string key;     // in JSON
    std::string heading; // in the table
    Json value;          // unknown(): the object lacks the key, and the table has a dash
    std::string text;    // the text of the cell

    // A number with a fraction is shown with `decimals` decimals, after multiplication by `factor` for tables in
    // another unit than JSON. All other values are shown as they are.
    Column(std::string json_key, std::string table_heading, const Json& figure, int decimals = 0, double factor = 1);
    Column(std::string json_key, std::string table_heading, Json figure, std::string cell)
        : key(std::move(json_key)), heading(std::move(table_heading)), value(std::move(figure)), text(std::move(cell)) {
    }

    static Json unknown() { return Json::value_t::discarded; }
};
using Columns = std::vector<Column>;

template <typename T, typename RowOf> std::vector<Columns> rows_of(const std::vector<T>& all, const RowOf& row_of) {
    std::vector<Columns> rows;
    for (const T& each : all)
        rows.push_back(row_of(each));
    return rows;
}

// Returns the object of a row, or the list of several rows' objects.
Json json_of(const Columns& row);
Json json_of(const std::vector<Columns>& rows);
// Returns headings and rows; each line begins with `margin`. Empty without rows. All rows have the same columns.
std::string table_of(const std::vector<Columns>& rows, const std::string& margin = "");

// Formats columns of text, each as wide as its widest cell. The first is aligned left, the others right.
std::string format_table(const std::vector<std::vector<std::string>>& rows);
std::string format_number(double value, int decimals);
std::string or_dash(double value, int decimals); // "-" unless above 0
// Returns "1.23 GiB", "45.6 MiB" or "789 bytes".
std::string format_bytes(std::uint64_t bytes);
// Returns "68,976,648,192", or "1,234 tokens".
std::string format_count(std::int64_t count);
std::string format_count(std::int64_t count, const std::string& noun);

} // namespace entrodraft::launch
