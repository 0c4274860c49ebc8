#include "lockstep/runtime/base/net/secret_message.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using Bytes = std::vector<uint8_t>;

const SecretRequest kRequest{.job = "4.2", .source = "MUNGE", .proof = {1, 2}};
const SecretReply kReply{.proof = {3}, .secret = "abcd"};

std::span<const uint8_t> without_size(const Bytes& message) {
  return std::span(message).subspan(kSecretSizeBytes);
}

TEST(SecretMessageTest, HasTheBytesOfItsFormat) {
  EXPECT_EQ(encode(kRequest), (Bytes{22, 0, 0, 0,                           // size
                                     3,  0, 0, 0, '4', '.', '2',            // job
                                     5,  0, 0, 0, 'M', 'U', 'N', 'G', 'E',  // source
                                     2,  0, 0, 0, 1,   2}));                // proof
  EXPECT_EQ(encode(kReply), (Bytes{13, 0, 0, 0, 1, 0, 0, 0, 3, 4, 0, 0, 0, 'a', 'b', 'c', 'd'}));
}

TEST(SecretMessageTest, IsReadAsItWasWritten) {
  EXPECT_EQ(decode_secret_request(without_size(encode(kRequest))), kRequest);
  EXPECT_EQ(decode_secret_reply(without_size(encode(kReply))), kReply);
  EXPECT_EQ(decode_secret_reply(without_size(encode(SecretReply{}))), SecretReply{});
}

TEST(SecretMessageTest, RefusesEveryPartOfAMessage) {
  const Bytes request = encode(kRequest);
  const Bytes reply = encode(kReply);
  for (size_t size = 0; size + 1 < without_size(request).size(); ++size)
    EXPECT_THROW(decode_secret_request(without_size(request).first(size)), InvalidArgument) << size;
  for (size_t size = 0; size + 1 < without_size(reply).size(); ++size)
    EXPECT_THROW(decode_secret_reply(without_size(reply).first(size)), InvalidArgument) << size;
}

TEST(SecretMessageTest, RefusesBytesAfterTheEnd) {
  Bytes request = encode(kRequest);
  request.push_back(0);
  EXPECT_THROW(decode_secret_request(without_size(request)), InvalidArgument);
  Bytes reply = encode(kReply);
  reply.push_back(0);
  EXPECT_THROW(decode_secret_reply(without_size(reply)), InvalidArgument);
}

TEST(SecretMessageTest, IsBoundedInSize) {
  const auto size = [](const Bytes& bytes) {
    return decode_secret_size(std::span(bytes).first<kSecretSizeBytes>());
  };
  EXPECT_EQ(size(encode(kRequest)), 22U);
  EXPECT_EQ(size({0, 0x80, 0, 0}), kMaxSecretMessageBytes);
  EXPECT_THROW(size({1, 0x80, 0, 0}), InvalidArgument);
  EXPECT_THROW(size({0xFF, 0xFF, 0xFF, 0xFF}), InvalidArgument);
  EXPECT_THROW(encode(SecretRequest{.proof = Bytes(kMaxSecretMessageBytes)}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
