#include "lockstep/datasets/text/internal/text_finder.h"

#include <algorithm>

namespace lockstep {

TextFinder::TextFinder(const std::vector<std::string>& texts) {
  for (size_t i = 0; i < texts.size(); ++i)
    if (!texts[i].empty()) entries_.push_back({.text = texts[i], .which = i});
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.text < b.text; });
  const auto is_same = [](const Entry& a, const Entry& b) { return a.text == b.text; };
  entries_.erase(std::unique(entries_.begin(), entries_.end(), is_same), entries_.end());
  for (size_t i = 0; i < entries_.size(); ++i) {
    Range& range = first_[static_cast<uint8_t>(entries_[i].text.front())];
    if (range.begin == range.end) range.begin = i;
    range.end = i + 1;
  }
}

std::optional<TextFinder::Match> TextFinder::find(std::string_view text, size_t from) const {
  if (entries_.empty()) return std::nullopt;
  for (size_t begin = from; begin < text.size(); ++begin) {
    const Range& range = first_[static_cast<uint8_t>(text[begin])];
    if (range.begin == range.end) continue;
    if (const auto match = match_at(text, begin)) return match;
  }
  return std::nullopt;
}

std::optional<TextFinder::Match> TextFinder::match_at(std::string_view text, size_t begin) const {
  std::optional<Match> longest;
  auto [first, last] = first_[static_cast<uint8_t>(text[begin])];
  for (size_t depth = 1;; ++depth) {
    // These entries agree with the text in `depth` bytes. One that ends here comes before longer ones.
    if (entries_[first].text.size() == depth) {
      longest = Match{.begin = begin, .end = begin + depth, .which = entries_[first].which};
      ++first;
    }
    if (first == last || begin + depth == text.size()) return longest;
    const auto byte_of = [&](const Entry& entry) { return static_cast<uint8_t>(entry.text[depth]); };
    const auto byte = static_cast<uint8_t>(text[begin + depth]);
    const auto range_begin = entries_.begin() + static_cast<ptrdiff_t>(first);
    const auto range_end = entries_.begin() + static_cast<ptrdiff_t>(last);
    const auto low = std::partition_point(range_begin, range_end,
                                          [&](const Entry& entry) { return byte_of(entry) < byte; });
    const auto high =
        std::partition_point(low, range_end, [&](const Entry& entry) { return byte_of(entry) == byte; });
    if (low == high) return longest;
    first = static_cast<size_t>(low - entries_.begin());
    last = static_cast<size_t>(high - entries_.begin());
  }
}

}  // namespace lockstep
