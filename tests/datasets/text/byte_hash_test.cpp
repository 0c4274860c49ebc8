#include "lockstep/datasets/text/internal/byte_hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace lockstep {
namespace {

TEST(ByteHashTest, WordsThatDifferInOneByteSpreadOverATable) {
  // 256 words drawn into 2^15 places at random share about one place.
  constexpr uint64_t kPlaces = uint64_t{1} << 15;
  for (size_t size = 1; size <= 24; ++size) {
    for (size_t place = 0; place < size; ++place) {
      std::set<uint64_t> places;
      std::string word(size, 'a');
      for (int byte = 0; byte < 256; ++byte) {
        word[place] = static_cast<char>(byte);
        places.insert(hash_of_bytes(word) % kPlaces);
      }
      EXPECT_GT(places.size(), 240U) << "byte " << place << " of " << size;
    }
  }
}

TEST(ByteHashTest, WordsOfZerosDifferByTheirLength) {
  std::set<uint64_t> hashes;
  for (size_t size = 0; size < 100; ++size) hashes.insert(hash_of_bytes(std::string(size, '\0')));
  EXPECT_EQ(hashes.size(), 100U);
}

}  // namespace
}  // namespace lockstep
