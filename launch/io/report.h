// Reports: rows whose figures are listed once, as aligned columns for people and as JSON with all digits for programs.
//
// Pure. Called by every command that prints a table.
#pragma once

#include "launch/io/json_line.h"
#include "launch/start/counted.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace entrodraft::launch {

// A figure of a row under its two names, of which either may be empty: then that form lacks it.
struct Column {
    std::string key;     // in JSON
    std::string heading; // in the table
    Json value;          // unknown(): the object lacks the key, and the table has a dash
    std::string text;    // as the table has it

    // A number with a fraction is shown with so many decimals, after multiplication with `factor`, for tables of
    // another unit than JSON's; all else as it is.
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

// The object of a row, and of several the list.
Json json_of(const Columns& row);
Json json_of(const std::vector<Columns>& rows);
// Headings and rows, each line behind `margin`; empty without rows. All rows have the same columns.
std::string table_of(const std::vector<Columns>& rows, const std::string& margin = "");

// Columns of text, each as wide as its widest cell; the first is aligned left, the others right.
std::string format_table(const std::vector<std::vector<std::string>>& rows);
std::string format_number(double value, int decimals);
std::string or_dash(double value, int decimals); // "-" unless above 0
// "1.23 GiB", "45.6 MiB", "789 bytes".
std::string format_bytes(std::uint64_t bytes);
// "68,976,648,192", and "1,234 tokens".
std::string format_count(std::int64_t count);
std::string format_count(std::int64_t count, const std::string& noun);

} // namespace entrodraft::launch
