#include "lockstep/datasets/clicks/internal/row_index.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "lockstep/datasets/files/data_error.h"

namespace lockstep {
namespace {

constexpr FileVersion kSource{.size = 5, .modified_ns = -7};

std::string index_of(const std::vector<uint64_t>& offsets, const RowIndexFacts& facts) {
  std::string bytes;
  RowIndexWriter writer([&](std::string_view piece) { bytes += piece; });
  for (const uint64_t offset : offsets) writer.add(offset, "file");
  const std::string header = writer.finish(facts);
  return bytes.replace(0, header.size(), header);
}

/// Offsets of rows of 40 to 1,000 bytes.
std::vector<uint64_t> some_offsets(size_t count) {
  std::vector<uint64_t> offsets;
  uint64_t offset = uint64_t{1} << 40;
  for (size_t i = 0; i < count; ++i) offsets.push_back(offset += 41 + i * i % 960);
  return offsets;
}

RowIndexFacts facts_of(const std::vector<uint64_t>& offsets) {
  return {.source = kSource,
          .rows = {.size = offsets.empty() ? 0 : offsets.back() + 50, .modified_ns = 8},
          .num_malformed = 9,
          .first_malformed = "line 3: no"};
}

TEST(RowIndex, GivesBackTheOffsetsAndFactsThatWereWritten) {
  for (const size_t count : {1, 4095, 4096, 4097, 300'000}) {
    const auto offsets = some_offsets(count);
    const std::string bytes = index_of(offsets, facts_of(offsets));
    const auto index = RowIndex::parse(bytes, kSource);
    ASSERT_TRUE(index);
    EXPECT_EQ(index->facts(), facts_of(offsets));
    ASSERT_EQ(index->num_rows(), count);
    for (size_t row = 0; row < count; ++row) ASSERT_EQ(index->offset(row), offsets[row]);
    const auto range = index->range(count - 1, 1);
    ASSERT_TRUE(range);
    EXPECT_EQ(range->begin, offsets.back());
    EXPECT_EQ(range->end, offsets.back() + 50);
  }
}

TEST(RowIndex, ManyRowsTakeFourBytesEach) {
  const auto offsets = some_offsets(100'000);
  EXPECT_LT(index_of(offsets, facts_of(offsets)).size(), 401'000U);
}

TEST(RowIndex, NoFlippedBitAndNoMissingByteIsBelieved) {
  const auto offsets = some_offsets(100);
  const std::string whole = index_of(offsets, facts_of(offsets));
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << i % 8));
    EXPECT_FALSE(RowIndex::parse(damaged, kSource)) << i;
    EXPECT_FALSE(RowIndex::parse(whole.substr(0, i), kSource)) << i;
  }
  EXPECT_FALSE(RowIndex::parse(whole + '\0', kSource));
}

TEST(RowIndex, IsOfOneVersionOfItsFile) {
  const auto bytes = index_of({0}, facts_of({0}));
  EXPECT_TRUE(RowIndex::parse(bytes, kSource));
  EXPECT_FALSE(RowIndex::parse(bytes, {.size = kSource.size + 1, .modified_ns = kSource.modified_ns}));
  EXPECT_FALSE(RowIndex::parse(bytes, {.size = kSource.size, .modified_ns = kSource.modified_ns + 1}));
}

TEST(RowIndex, WithoutItsHeaderItIsNone) {
  std::string bytes;
  RowIndexWriter writer([&](std::string_view piece) { bytes += piece; });
  writer.add(0, "file");
  writer.finish({.rows = {.size = 50}});
  EXPECT_FALSE(RowIndex::parse(bytes, {}));
}

TEST(RowIndex, HasNoPartBeyondItsFile) {
  const auto offsets = some_offsets(10);
  auto facts = facts_of(offsets);
  facts.rows.size = offsets[5];
  const auto bytes = index_of(offsets, facts);
  const auto index = RowIndex::parse(bytes, kSource);
  ASSERT_TRUE(index);
  EXPECT_TRUE(index->range(3, 2));
  EXPECT_FALSE(index->range(5, 1));
  EXPECT_FALSE(index->range(0, 7));
}

TEST(RowIndex, RefusesAFileThatHasHardlyAnyRows) {
  RowIndexWriter writer([](std::string_view) {});
  writer.add(0, "file");
  EXPECT_THROW(writer.add(uint64_t{1} << 32, "file"), DataError);
}

}  // namespace
}  // namespace lockstep
