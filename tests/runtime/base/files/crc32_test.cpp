#include "lockstep/runtime/base/files/internal/crc32.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

/// The check value of the CRC catalogue, and the checksums that Python's zlib.crc32 gives.
TEST(Crc32Test, GivesKnownChecksums) {
  EXPECT_EQ(crc32("123456789", 9), 0xCBF43926U);
  EXPECT_EQ(crc32("", 0), 0U);
  EXPECT_EQ(crc32("a", 1), 0xE8B7BE43U);
  EXPECT_EQ(crc32("little", 6), 0x19E33D85U);
  const std::string many(1000, 'x');
  EXPECT_EQ(crc32(many.data(), many.size()), 0x3B41C9E6U);
}

TEST(Crc32Test, ContinuesFromThePreviousBytes) {
  const std::string text = "a text longer than two times eight bytes";
  for (size_t split = 0; split <= text.size(); ++split) {
    EXPECT_EQ(crc32(text.data() + split, text.size() - split, crc32(text.data(), split)),
              crc32(text.data(), text.size()));
  }
}

}  // namespace
}  // namespace lockstep
