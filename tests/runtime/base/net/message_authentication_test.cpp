#include "lockstep/runtime/base/net/message_authentication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Property;
using ::testing::Throws;

std::vector<uint8_t> message_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

/// The hex digits of `count` equal bytes.
std::string repeated_digits(const std::string& byte, int count) {
  std::string digits;
  for (int i = 0; i < count; ++i) digits += byte;
  return digits;
}

std::string tag_digits(const JobToken& token, const std::vector<uint8_t>& message) {
  const JobToken::Tag tag = token.tag(message);
  return JobToken::from_text(std::string(tag.begin(), tag.end())).hex();
}

TEST(JobToken, GivesTheTagsOfRfc4231) {
  const std::string key_of_131 = repeated_digits("aa", 131);
  EXPECT_EQ(tag_digits(JobToken::from_hex(repeated_digits("0b", 20)), message_bytes("Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(tag_digits(JobToken::from_text("Jefe"), message_bytes("what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(tag_digits(JobToken::from_hex(repeated_digits("aa", 20)), message_bytes(std::string(50, '\xdd'))),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(tag_digits(JobToken::from_hex("0102030405060708090a0b0c0d0e0f10111213141516171819"),
                       message_bytes(std::string(50, '\xcd'))),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  EXPECT_THAT(
      tag_digits(JobToken::from_hex(repeated_digits("0c", 20)), message_bytes("Test With Truncation")),
      ::testing::StartsWith("a3b6167473100ee06e0c796c2955552b"));
  EXPECT_EQ(tag_digits(JobToken::from_hex(key_of_131),
                       message_bytes("Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(tag_digits(JobToken::from_hex(key_of_131),
                       message_bytes("This is a test using a larger than block-size key and a larger than "
                                     "block-size data. The key needs to be hashed before being used by the "
                                     "HMAC algorithm.")),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(JobToken, GivesTheTagOfAnEmptyMessage) {
  // Python's hmac.new(b"key", b"", "sha256").
  EXPECT_EQ(tag_digits(JobToken::from_text("key"), {}),
            "5d5d139563c95b5967b9bd9a8c9b233a9dedb45072794cd232dc1b74832607d0");
}

TEST(JobToken, VerifiesItsOwnTagsOnly) {
  const auto token = JobToken::from_text("secret");
  const auto message = message_bytes("message");
  const JobToken::Tag tag = token.tag(message);
  EXPECT_TRUE(token.verify(message, tag));
  EXPECT_FALSE(token.verify(message_bytes("messagf"), tag));
  EXPECT_FALSE(JobToken::from_text("secreu").verify(message, tag));
  for (size_t bit = 0; bit < tag.size() * 8; ++bit) {
    JobToken::Tag flipped = tag;
    flipped[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_FALSE(token.verify(message, flipped)) << "bit " << bit;
  }
  for (size_t length = 0; length < tag.size(); ++length) {
    EXPECT_FALSE(token.verify(message, std::span(tag).first(length))) << length << " bytes";
  }
}

TEST(JobToken, ReadsTheDigitsItWrites) {
  EXPECT_EQ(JobToken::from_text("\x01\xab").hex(), "01ab");
  EXPECT_EQ(JobToken::from_hex("01AB").hex(), "01ab");
  const auto token = JobToken::random();
  const auto message = message_bytes("message");
  EXPECT_EQ(token.hex().size(), 64u);
  EXPECT_EQ(JobToken::from_hex(token.hex()).tag(message), token.tag(message));
}

TEST(JobToken, IsRandomAnewEachTime) {
  EXPECT_NE(JobToken::random().hex(), JobToken::random().hex());
}

TEST(JobToken, RefusesWhatIsNoSecretWithoutRepeatingIt) {
  EXPECT_THROW(JobToken::from_text(""), InvalidArgument);
  EXPECT_THROW(JobToken::from_hex(""), InvalidArgument);
  EXPECT_THAT([] { JobToken::from_hex("abc"); },
              Throws<InvalidArgument>(
                  Property(&InvalidArgument::what,
                           HasSubstr("expected two hexadecimal digits a byte, but got 3 characters"))));
  for (const std::string digits : {"abcdef0g", "abcdef0/", "abcdef0G", "abcdef0 ", "abcdef0@"}) {
    EXPECT_THAT(
        [&] { JobToken::from_hex(digits); },
        Throws<InvalidArgument>(Property(&InvalidArgument::what,
                                         ::testing::AllOf(HasSubstr("position 7"), Not(HasSubstr("cdef"))))))
        << digits;
  }
}

}  // namespace
}  // namespace lockstep
