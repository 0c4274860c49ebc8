#include "lockstep/datasets/text/internal/text_finder.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>

namespace lockstep {
namespace {

/// The definition: at the first place where a text of the list stands, the longest one, and of equal ones the
/// first.
std::optional<TextFinder::Match> found_by_definition(const std::vector<std::string>& list,
                                                     const std::string& text, size_t from) {
  for (size_t begin = from; begin < text.size(); ++begin) {
    std::optional<TextFinder::Match> longest;
    for (size_t i = 0; i < list.size(); ++i) {
      const size_t size = list[i].size();
      if (size == 0 || text.compare(begin, size, list[i]) != 0) continue;
      if (!longest || size > longest->end - longest->begin)
        longest = TextFinder::Match{.begin = begin, .end = begin + size, .which = i};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

std::string random_text(std::mt19937& random, size_t max_size) {
  std::string text(random() % (max_size + 1), '\0');
  for (char& byte : text) byte = "ab\xFF"[random() % 3];
  return text;
}

TEST(TextFinderTest, FindsTheLongestTextAtTheFirstPlace) {
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> list(random() % 12);
    for (std::string& text : list) text = random_text(random, 5);
    const TextFinder finder(list);
    const std::string text = random_text(random, 30);
    for (size_t from = 0; from <= text.size(); ++from) {
      const auto expected = found_by_definition(list, text, from);
      const auto found = finder.find(text, from);
      ASSERT_EQ(found.has_value(), expected.has_value()) << "round " << round << " from " << from;
      if (!found) continue;
      EXPECT_EQ(found->begin, expected->begin);
      EXPECT_EQ(found->end, expected->end);
      EXPECT_EQ(found->which, expected->which);
    }
  }
}

}  // namespace
}  // namespace lockstep
