#include "lockstep/runtime/base/files/internal/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

// The examples of FIPS 180-2, appendix B.
TEST(Sha256Test, GivesTheDigestsOfTheStandard) {
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, TakesBytesInPiecesAndBeginsAnew) {
  Sha256 digest;
  digest.update("a", 1);
  digest.update("", 0);
  digest.update("bc", 2);
  EXPECT_EQ(digest.finish(), sha256("abc"));
  EXPECT_EQ(digest.finish(), sha256(""));
}

}  // namespace
}  // namespace lockstep
