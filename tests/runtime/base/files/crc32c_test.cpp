#include "lockstep/runtime/base/files/internal/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace lockstep {
namespace {

std::vector<uint8_t> counted_bytes(int first, int step) {
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<uint8_t>(first + step * i));
  return bytes;
}

// RFC 3720, appendix B.4.
TEST(Crc32cTest, MatchesTheVectorsOfItsRfc) {
  EXPECT_EQ(crc32c(counted_bytes(0, 0)), 0x8A9136AAU);
  EXPECT_EQ(crc32c(counted_bytes(255, 0)), 0x62A8AB43U);
  EXPECT_EQ(crc32c(counted_bytes(0, 1)), 0x46DD794EU);
  EXPECT_EQ(crc32c(counted_bytes(31, -1)), 0x113FDB5CU);
}

// The check value of CRC-32/ISCSI in the catalogue of parametrised CRC algorithms.
TEST(Crc32cTest, MatchesTheCheckValueOfTheCatalogue) {
  constexpr std::string_view kDigits = "123456789";
  EXPECT_EQ(crc32c(std::vector<uint8_t>(kDigits.begin(), kDigits.end())), 0xE3069283U);
}

TEST(Crc32cTest, IsZeroForNoBytes) {
  EXPECT_EQ(crc32c({}), 0U);
}

TEST(Crc32cTest, MaskCanBeTakenOff) {
  const auto bytes = counted_bytes(3, 7);
  const uint32_t turned = masked_crc32c(bytes) - 0xA282EAD8U;
  EXPECT_EQ((turned >> 17) | (turned << 15), crc32c(bytes));
}

}  // namespace
}  // namespace lockstep
