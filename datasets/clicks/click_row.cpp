#include "lockstep/datasets/clicks/click_row.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <system_error>

#include "lockstep/datasets/clicks/internal/quoted_field.h"

namespace lockstep {
namespace {

constexpr int kFields = 1 + kClickNumbers + kClickCategories;

std::string wrong(int field, const char* expected, std::string_view given) {
  return "field " + std::to_string(field + 1) + ": expected " + expected + ", but got " + quoted_field(given);
}

/// Parses the whole text as one number.
template <typename Number>
bool parse_number(std::string_view text, int base, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size();
}

std::optional<std::string> parse_field(int field, std::string_view text, ClickRow& row) {
  if (field == 0) {
    row.is_click = text == "1";
    if (!row.is_click && text != "0") return wrong(field, "a label of 0 or 1", text);
    return std::nullopt;
  }
  if (field <= kClickNumbers) {
    auto& number = row.numbers[static_cast<size_t>(field - 1)];
    number.reset();
    if (text.empty()) return std::nullopt;
    if (!parse_number(text, 10, number.emplace()))
      return wrong(field, "an integer of 64 bits or nothing", text);
    return std::nullopt;
  }
  auto& category = row.categories[static_cast<size_t>(field - 1 - kClickNumbers)];
  category.reset();
  if (text.empty()) return std::nullopt;
  if (text.size() != 8 || !parse_number(text, 16, category.emplace()))
    return wrong(field, "8 hexadecimal digits or nothing", text);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> parse_click_row(std::string_view line, ClickRow& row) {
  int field = 0;
  for (size_t begin = 0; begin <= line.size(); ++field) {
    const size_t end = std::min(line.find('\t', begin), line.size());
    if (field == kFields)
      return "expected " + std::to_string(kFields) + " tab-separated fields, but got " +
             std::to_string(1 + std::count(line.begin(), line.end(), '\t'));
    if (auto error = parse_field(field, line.substr(begin, end - begin), row)) return error;
    begin = end + 1;
  }
  if (field < kFields)
    return "expected " + std::to_string(kFields) + " tab-separated fields, but got " + std::to_string(field);
  return std::nullopt;
}

std::string click_row_text(const ClickRow& row) {
  std::string text = row.is_click ? "1" : "0";
  for (const auto& number : row.numbers) {
    text += '\t';
    if (number) text += std::to_string(*number);
  }
  for (const auto& category : row.categories) {
    text += '\t';
    if (!category) continue;
    std::array<char, 9> digits{};
    std::snprintf(digits.data(), digits.size(), "%08x", *category);
    text += digits.data();
  }
  return text;
}

float click_feature(std::optional<int64_t> number) {
  return number && *number > 0 ? static_cast<float>(std::log1p(static_cast<double>(*number))) : 0.F;
}

int64_t click_id(int column, std::optional<uint32_t> category) {
  // In each column, 0 stands for a missing category.
  return (int64_t{column} << 33) + (category ? int64_t{*category} + 1 : 0);
}

}  // namespace lockstep
