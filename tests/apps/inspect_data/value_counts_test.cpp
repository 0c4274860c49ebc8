#include "lockstep/apps/inspect_data/value_counts.h"

#include <gtest/gtest.h>

#include <random>

namespace lockstep::apps {
namespace {

TEST(ValueCounts, CountNumbersAndTextsExactlyWhileTheyAreFew) {
  ValueCounts numbers, texts;
  for (uint64_t i = 0; i < 5000; ++i) {
    numbers.add(i % 1000);
    texts.add("value " + std::to_string(i % 7));
  }
  EXPECT_TRUE(numbers.is_exact() && texts.is_exact());
  EXPECT_EQ(numbers.num_distinct(), 1000);
  EXPECT_EQ(numbers.of_numbers().at(999), 5);
  EXPECT_EQ(texts.num_distinct(), 7);
  EXPECT_EQ(texts.of_texts().at("value 6"), 5000 / 7);
}

TEST(ValueCounts, TellLongTextsApartWithoutKeepingThem) {
  ValueCounts counts;
  for (const char end : {'a', 'b', 'a'}) counts.add(std::string(10'000, 'x') + end);
  EXPECT_EQ(counts.num_distinct(), 2);
  EXPECT_TRUE(counts.of_texts().empty());
}

TEST(ValueCounts, EstimateManyValuesWithinFourStandardErrors) {
  for (const int64_t distinct : {1'001, 5'000, 30'000, 60'000, 1'000'000}) {
    ValueCounts numbers, texts;
    for (int repeated = 0; repeated < 2; ++repeated) {
      for (int64_t i = 0; i < distinct; ++i) {
        numbers.add(static_cast<uint64_t>(i * 3));
        if (distinct < 100'000) texts.add(std::to_string(i));
      }
    }
    EXPECT_FALSE(numbers.is_exact());
    const double tolerance = 0.0325 * static_cast<double>(distinct);
    EXPECT_NEAR(static_cast<double>(numbers.num_distinct()), static_cast<double>(distinct), tolerance);
    if (distinct < 100'000) {
      EXPECT_NEAR(static_cast<double>(texts.num_distinct()), static_cast<double>(distinct), tolerance);
    }
  }
}

TEST(ValueCounts, AreTheSameInOnePartAndInSeveral) {
  std::mt19937_64 draw(1);
  for (const uint64_t range : {50U, 900U, 1100U, 40'000U}) {
    ValueCounts whole, merged, part;
    for (int i = 0; i < 20'000; ++i) {
      const uint64_t number = draw() % range;
      whole.add(number);
      part.add(number);
      if (draw() % 3000 != 0) continue;
      merged.merge(part);
      part = ValueCounts();
    }
    merged.merge(part);
    EXPECT_EQ(merged.is_exact(), whole.is_exact());
    EXPECT_EQ(merged.num_distinct(), whole.num_distinct());
    EXPECT_EQ(merged.of_numbers(), whole.of_numbers());
  }
}

}  // namespace
}  // namespace lockstep::apps
