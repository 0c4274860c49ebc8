#include "lockstep/datasets/parquet/internal/hybrid_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace lockstep {
namespace {

using PackedBytes = std::vector<uint8_t>;
using HybridNumbers = std::vector<uint32_t>;

void add_varint(PackedBytes& bytes, uint64_t number) {
  for (; number >= 0x80; number >>= 7) bytes.push_back(static_cast<uint8_t>(number | 0x80));
  bytes.push_back(static_cast<uint8_t>(number));
}

void add_repeated(PackedBytes& bytes, size_t count, uint32_t number, int width) {
  add_varint(bytes, count << 1);
  for (int byte = 0; byte < (width + 7) / 8; ++byte)
    bytes.push_back(static_cast<uint8_t>(number >> (8 * byte)));
}

/// Adds numbers bit by bit, the lowest first. Their count must be a multiple of 8.
void add_packed(PackedBytes& bytes, const HybridNumbers& numbers, int width) {
  add_varint(bytes, numbers.size() / 8 << 1 | 1);
  const size_t begin = bytes.size();
  bytes.resize(begin + numbers.size() / 8 * static_cast<size_t>(width));
  for (size_t i = 0; i < numbers.size(); ++i) {
    for (size_t bit = 0; bit < static_cast<size_t>(width); ++bit) {
      const size_t place = i * static_cast<size_t>(width) + bit;
      bytes[begin + place / 8] |= static_cast<uint8_t>((numbers[i] >> bit & 1) << place % 8);
    }
  }
}

/// Reads up to `count` numbers, in pieces of at most `piece`.
HybridNumbers decoded_numbers(PackedBytes bytes, int width, size_t count, size_t piece) {
  const size_t size = bytes.size();
  bytes.resize(size + HybridDecoder::kPadding, 0xff);
  HybridDecoder decoder(bytes.data(), size, width);
  HybridNumbers numbers(count);
  size_t done = 0;
  while (done < count) {
    const size_t some = decoder.read(numbers.data() + done, std::min(piece, count - done));
    if (some == 0) break;
    done += some;
  }
  numbers.resize(done);
  return numbers;
}

TEST(HybridDecoder, ReadsTheExampleOfTheFormat) {
  // https://parquet.apache.org/docs/file-format/data-pages/encodings/: 0 to 7 in three bits.
  EXPECT_EQ(decoded_numbers({0x03, 0x88, 0xc6, 0xfa}, 3, 8, 8), (HybridNumbers{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(HybridDecoder, ReadsRunsOfEveryWidthInPiecesOfAnySize) {
  std::mt19937 random(3);
  for (int width = 0; width <= 32; ++width) {
    const uint32_t largest = width == 0 ? 0 : 0xffffffffU >> (32 - width);
    PackedBytes bytes;
    HybridNumbers expected;
    for (int run = 0; run < 20; ++run) {
      const size_t count = 8 * (1 + random() % 20);
      HybridNumbers numbers(count, random() & largest);
      if (run % 3 == 0) {
        const size_t some = count - random() % 8;
        add_repeated(bytes, some, numbers[0], width);
        numbers.resize(some);
      } else {
        for (uint32_t& number : numbers) number = random() & largest;
        add_packed(bytes, numbers, width);
      }
      expected.insert(expected.end(), numbers.begin(), numbers.end());
    }
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{8}, size_t{61}, expected.size()})
      EXPECT_EQ(decoded_numbers(bytes, width, expected.size(), piece), expected)
          << width << " bits, " << piece;
  }
}

TEST(HybridDecoder, ReadsBitsAsItReadsNumbers) {
  std::mt19937 random(6);
  for (int round = 0; round < 200; ++round) {
    PackedBytes bytes;
    for (int run = 0; run < 12; ++run) {
      if (random() % 2 == 0) {
        add_repeated(bytes, 1 + random() % 150, random() & 1, 1);
      } else {
        HybridNumbers numbers(8 * (1 + random() % 20));
        for (uint32_t& number : numbers) number = random() & 1;
        add_packed(bytes, numbers, 1);
      }
    }
    if (round % 2 == 0) bytes.resize(bytes.size() - random() % 3);
    const size_t piece = 1 + random() % 200;
    const HybridNumbers expected = decoded_numbers(bytes, 1, 3000, piece);
    HybridNumbers numbers;
    const size_t size = bytes.size();
    bytes.resize(size + HybridDecoder::kPadding, 0xff);
    HybridDecoder decoder(bytes.data(), size, 1);
    std::vector<uint64_t> bits((piece + 63) / 64);
    while (numbers.size() < 3000) {
      std::ranges::fill(bits, ~uint64_t{0});
      const size_t count = std::min(piece, 3000 - numbers.size());
      const size_t some = decoder.read_bits(bits.data(), count);
      for (size_t i = 0; i < some; ++i)
        numbers.push_back(static_cast<uint32_t>(bits[i / 64] >> (i % 64) & 1));
      for (size_t i = some; i < (count + 63) / 64 * 64; ++i) EXPECT_EQ(bits[i / 64] >> (i % 64) & 1, 0);
      if (some < count) break;
    }
    EXPECT_EQ(numbers, expected);
  }
}

TEST(HybridDecoder, EndsWithItsBytes) {
  std::mt19937 random(4);
  HybridNumbers numbers(64);
  for (uint32_t& number : numbers) number = random() % 2048;
  PackedBytes bytes;
  add_packed(bytes, numbers, 11);
  for (size_t size = 1; size <= bytes.size(); ++size) {
    const auto count = static_cast<std::ptrdiff_t>((size - 1) * 8 / 11);
    EXPECT_EQ(
        decoded_numbers({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}, 11, 100, 100),
        HybridNumbers(numbers.begin(), numbers.begin() + count));
  }
  EXPECT_EQ(decoded_numbers({}, 11, 5, 5), HybridNumbers());
  EXPECT_EQ(decoded_numbers({0x08, 0x01}, 11, 5, 5), HybridNumbers());        // a number of two bytes
  EXPECT_EQ(decoded_numbers({0x08, 0x01, 0x10}, 11, 5, 5), HybridNumbers());  // of more than 11 bits
  EXPECT_EQ(decoded_numbers({0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 11, 5, 5),
            HybridNumbers());  // a run too long
}

TEST(HybridDecoder, AnyBytesLeadToNumbersOfTheWidth) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    PackedBytes bytes(random() % 40);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    const int width = static_cast<int>(random() % 33);
    for (const uint32_t number : decoded_numbers(bytes, width, 500, 1 + random() % 100)) {
      if (width < 32) {
        EXPECT_EQ(number >> width, 0U);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
