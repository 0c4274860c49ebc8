#include "lockstep/runtime/base/internal/little_endian.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace lockstep {
namespace {

TEST(LittleEndian, PutsTheLowestByteFirst) {
  LittleEndianWriter writer;
  writer.write(uint32_t{0x01020304});
  writer.write(int16_t{-2});
  writer.write(1.0);  // IEEE 754: 0x3ff0000000000000
  writer.write_text("ab");
  EXPECT_EQ(writer.bytes(), (std::vector<uint8_t>{4, 3, 2,    1,    0xfe, 0xff, 0, 0, 0,   0,
                                                  0, 0, 0xf0, 0x3f, 2,    0,    0, 0, 'a', 'b'}));
}

TEST(LittleEndian, GivesBackWhatWasWritten) {
  LittleEndianWriter writer;
  writer.write(std::numeric_limits<int64_t>::min());
  writer.write(uint8_t{200});
  writer.write(-0.1);
  writer.write_text("");
  writer.write_text(std::string("\0\xff", 2));
  LittleEndianReader reader(writer.bytes());
  EXPECT_EQ(reader.read<int64_t>(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(reader.read<uint8_t>(), 200);
  EXPECT_EQ(reader.read_double(), -0.1);
  EXPECT_EQ(reader.read_text(), "");
  EXPECT_EQ(reader.read_text(), std::string("\0\xff", 2));
  EXPECT_EQ(reader.num_left(), 0U);
}

TEST(LittleEndian, EndsWhereTheBytesEnd) {
  const std::vector<uint8_t> three{1, 2, 3};
  EXPECT_THROW(LittleEndianReader(three).read<uint32_t>(), InvalidArgument);
  // A text whose length exceeds the bytes that are there.
  const std::vector<uint8_t> text{0xff, 0xff, 0xff, 0xff, 'a'};
  EXPECT_THROW(LittleEndianReader(text).read_text(), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
