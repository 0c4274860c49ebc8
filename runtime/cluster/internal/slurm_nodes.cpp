#include "lockstep/runtime/cluster/internal/slurm_nodes.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace lockstep {
namespace {

/// Node names longer than any host name are a mistake.
constexpr size_t kMaxNodeName = 253;

std::optional<int> read_digits_at(std::string_view text, size_t& position) {
  int value = 0;
  const char* begin = text.data() + position;
  const char* end = text.data() + text.size();
  if (begin == end || *begin < '0' || *begin > '9') return std::nullopt;
  const auto [rest, error] = std::from_chars(begin, end, value);
  if (error != std::errc()) return std::nullopt;
  position = static_cast<size_t>(rest - text.data());
  return value;
}

bool is_node_character(char character) {
  return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
         (character >= '0' && character <= '9') || character == '-' || character == '_' || character == '.';
}

/// Reads one list from left to right.
class NodeListReader {
 public:
  NodeListReader(std::string_view text, const ConfigurationValue& value) : text_(text), value_(value) {}

  std::vector<std::string> read() {
    std::vector<std::string> nodes;
    do {
      std::vector<std::string> names = read_names(kMaxSlurmNodes - nodes.size());
      std::move(names.begin(), names.end(), std::back_inserter(nodes));
    } while (skip(','));
    if (position_ < text_.size()) refuse("a list of nodes such as n[01-03],login");
    return nodes;
  }

 private:
  /// Reads up to a comma outside brackets: text and bracketed numbers in turn.
  std::vector<std::string> read_names(size_t max_names) {
    const size_t begin = position_;
    std::vector<std::string> names = {""};
    if (max_names == 0) refuse_size();
    while (position_ < text_.size() && text_[position_] != ',') {
      std::vector<std::string> parts;
      if (skip('[')) {
        parts = read_numbers(max_names / names.size());
      } else {
        parts.push_back(read_plain_text());
      }
      std::vector<std::string> longer;
      longer.reserve(names.size() * parts.size());
      for (const std::string& name : names) {
        for (const std::string& part : parts) longer.push_back(name + part);
      }
      names = std::move(longer);
      const bool is_too_long = std::any_of(
          names.begin(), names.end(), [](const std::string& name) { return name.size() > kMaxNodeName; });
      if (is_too_long) refuse("names of at most 253 characters");
    }
    if (position_ == begin) refuse("a list of nodes without an empty name");
    return names;
  }

  std::string read_plain_text() {
    const size_t begin = position_;
    while (position_ < text_.size() && is_node_character(text_[position_])) ++position_;
    if (position_ == begin) refuse("a list of nodes such as n[01-03],login");
    return std::string(text_.substr(begin, position_ - begin));
  }

  /// Reads the numbers in brackets, padded as written.
  std::vector<std::string> read_numbers(size_t max_numbers) {
    std::vector<std::string> numbers;
    do {
      const size_t begin = position_;
      const auto first = read_digits_at(text_, position_);
      const size_t width = position_ - begin;
      const auto last = first && skip('-') ? read_digits_at(text_, position_) : first;
      if (!first || !last || *last < *first || width > kMaxNodeName) {
        refuse("numbers in brackets such as [01-03,7]");
      }
      if (static_cast<size_t>(*last - *first) >= max_numbers - numbers.size()) refuse_size();
      for (int64_t number = *first; number <= *last; ++number) {
        std::string digits = std::to_string(number);
        if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
        numbers.push_back(std::move(digits));
      }
    } while (skip(','));
    if (!skip(']')) refuse("a list of nodes with closed brackets");
    return numbers;
  }

  bool skip(char character) {
    if (position_ == text_.size() || text_[position_] != character) return false;
    ++position_;
    return true;
  }

  [[noreturn]] void refuse(const std::string& expected) const {
    refuse_value(value_, expected,
                 quoted_excerpt(text_) + " (wrong at character " + std::to_string(position_ + 1) + ")");
  }
  [[noreturn]] void refuse_size() const {
    refuse_value(value_, "at most " + std::to_string(kMaxSlurmNodes) + " nodes", quoted_excerpt(text_));
  }

  std::string_view text_;
  const ConfigurationValue& value_;
  size_t position_ = 0;
};

}  // namespace

std::vector<std::string> expand_slurm_nodes(std::string_view text, const ConfigurationValue& value) {
  return NodeListReader(text, value).read();
}

std::vector<int> expand_slurm_counts(std::string_view text, const ConfigurationValue& value) {
  std::vector<int> counts;
  const auto refuse = [&] {
    refuse_value(value, "counts such as 2(x3),1 for at most " + std::to_string(kMaxSlurmNodes) + " nodes",
                 quoted_excerpt(text));
  };
  size_t position = 0;
  while (true) {
    const auto count = read_digits_at(text, position);
    std::optional<int> nodes = 1;
    if (text.substr(position, 2) == "(x") {
      position += 2;
      nodes = read_digits_at(text, position);
      if (text.substr(position, 1) != ")") refuse();
      ++position;
    }
    if (!count || *count == 0 || !nodes || *nodes == 0) refuse();
    if (static_cast<size_t>(*nodes) > kMaxSlurmNodes - counts.size()) refuse();
    counts.insert(counts.end(), static_cast<size_t>(*nodes), *count);
    if (position == text.size()) return counts;
    if (text[position] != ',') refuse();
    ++position;
  }
}

}  // namespace lockstep
