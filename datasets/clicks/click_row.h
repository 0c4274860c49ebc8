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
/// label, 13 integers and 26 categories, tab-separated, of which any but the label may be missing. Categories
/// are hashes of 32 bits, written as 8 hexadecimal digits.
struct ClickRow {
  bool is_click = false;
  std::array<std::optional<int64_t>, kClickNumbers> numbers;
  std::array<std::optional<uint32_t>, kClickCategories> categories;

  bool operator==(const ClickRow&) const = default;
};

/// Reads a line without its line break. Returns what is wrong with it, with the number of the field from 1
/// on, and nothing where it is well-formed; `row` is of use only then.
std::optional<std::string> parse_click_row(std::string_view line, ClickRow& row);

/// The line, without a line break.
std::string click_row_text(const ClickRow& row);

/// A number as models take it: log(1 + x), and 0 for a missing or a negative one, as Naumov et al., "Deep
/// Learning Recommendation Model for Personalization and Recommendation Systems" (2019) do with these data.
float click_feature(std::optional<int64_t> number);

/// A category as an id that no other column has: of a missing one, too.
int64_t click_id(int column, std::optional<uint32_t> category);

}  // namespace lockstep
