#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/datasets/tokens/generated_language.h"

namespace lockstep {
namespace {

TEST(GeneratedFacts, TellOfEachPersonWhichTownItLivesIn) {
  constexpr int kNames = 16;
  const GeneratedLanguage language({.num_names = kNames, .fact_share = 1});
  EXPECT_EQ(language.vocab_size(), 2U + 3 * kNames);  // with the end of the text and the stop
  std::map<std::string, std::string> town_of;         // by given and family name
  std::map<std::string, int> count_of;                // persons by town
  for (uint64_t index = 0; index < 100; ++index) {
    std::vector<uint32_t> tokens(401);
    language.draw({.seed = 9, .index = index}, tokens);
    std::istringstream words(language.text(tokens));
    std::string given;
    std::string family;
    std::string lives;
    std::string in;
    std::string town;
    while (words >> given >> family >> lives >> in >> town) {
      EXPECT_EQ(lives + in, "livesin");
      if (words.eof()) break;  // The text may end before the stop.
      EXPECT_TRUE(town.ends_with('.')) << town;
      const auto [place, is_new] = town_of.try_emplace(given.append(" ").append(family), town);
      EXPECT_EQ(place->second, town) << place->first;
      if (is_new) ++count_of[town];
    }
  }
  EXPECT_EQ(town_of.size(), size_t{kNames * kNames});  // each is met 40 times on average
  // The towns of 256 persons, drawn alike: 15 degrees of freedom, exceeded with a probability of 0.1 %.
  double chi_square = 0;
  for (const auto& [town, count] : count_of) chi_square += std::pow(count - kNames, 2) / kNames;
  EXPECT_EQ(count_of.size(), size_t{kNames});
  EXPECT_LT(chi_square, 37.7);
}

// So neither name helps without the other: a model must know the town of each pair.
TEST(GeneratedFacts, OneNameDoesNotTellTheTown) {
  constexpr int kNames = 128;
  const GeneratedLanguage language({.num_names = kNames, .fact_share = 1});
  const uint32_t first_given = 2;
  const uint32_t first_family = first_given + kNames;
  std::map<std::pair<uint32_t, size_t>, int> of_given;  // persons by name and town
  std::map<std::pair<uint32_t, size_t>, int> of_family;
  for (uint32_t given = 0; given < kNames; ++given) {
    for (uint32_t family = 0; family < kNames; ++family) {
      const auto next = language.probabilities(
          std::vector<uint32_t>{language.end_of_text(), first_given + given, first_family + family});
      const auto town = static_cast<size_t>(std::find(next.begin(), next.end(), 1.0) - next.begin());
      ASSERT_LT(town, next.size()) << "not one town alone";
      ++of_given[{given, town}];
      ++of_family[{family, town}];
    }
  }
  // The entropy of 128 draws out of 128 towns, by counting, is below log(128) by about a half (Paninski,
  // "Estimation of Entropy and Mutual Information", 2003); names that told the town would leave 0.
  for (const auto* counts : {&of_given, &of_family}) {
    double entropy = 0;  // of the town, given the name
    for (const auto& [name_and_town, count] : *counts)
      entropy -= count * std::log(static_cast<double>(count) / kNames) / (kNames * kNames);
    EXPECT_GT(entropy, std::log(kNames) - 0.7);
  }
}

}  // namespace
}  // namespace lockstep
