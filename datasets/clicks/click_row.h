#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr int kClickNumbers = 13;
inline constexpr int kClickCategories = 26;

/// A line of Criteo's click logs (Criteo Labs, "Display Advertising Challenge" and "Terabyte Click Logs"): a
/// label, 13 integers and 26 categories, separated by tabs. All but the label may be missing. Categories are
/// 32-bit hashes, written as 8 hexadecimal digits.
struct ClickRow {
  bool is_click = false;
  std::array<std::optional<int64_t>, kClickNumbers> numbers;
  std::array<std::optional<uint32_t>, kClickCategories> categories;

  bool operator==(const ClickRow&) const = default;
};

/// Parses a line without its line break into `row`. Returns nothing if the line is well-formed, else a
/// message that names the wrong field, counted from 1; `row` is then unspecified.
std::optional<std::string> parse_click_row(std::string_view line, ClickRow& row);

/// Returns the line for a row, without a line break.
std::string click_row_text(const ClickRow& row);

/// Returns a number as models use it: log(1 + x), or 0 if it is missing or negative, as Naumov et al., "Deep
/// Learning Recommendation Model for Personalization and Recommendation Systems" (2019) do with these data.
float click_feature(std::optional<int64_t> number);

/// Returns a category as an id that is unique over all columns. A missing category has an id of its own in
/// each column.
int64_t click_id(int column, std::optional<uint32_t> category);

}  // namespace lockstep
