#include "lockstep/runtime/base/net/channel_identity.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

ChannelIdentity some_identity() {
  return {
      .purpose = "rpc", .client = "worker 1", .server = "ps 0", .number = 3, .generation = uint64_t{1} << 40};
}

TEST(ChannelIdentity, ComesBackFromItsBytes) {
  EXPECT_EQ(decode_identity(encode_identity(some_identity())), some_identity());
  EXPECT_EQ(decode_identity(encode_identity({})), ChannelIdentity{});
}

TEST(ChannelIdentity, IsRefusedIfAByteIsMissingOrTooMuch) {
  auto bytes = encode_identity(some_identity());
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode_identity(std::span(bytes).first(size))) << size;
  bytes.push_back(0);
  EXPECT_FALSE(decode_identity(bytes));
}

TEST(ChannelIdentity, NamesAreShort) {
  auto identity = some_identity();
  identity.client = std::string(64, 'x');
  EXPECT_EQ(decode_identity(encode_identity(identity)), identity);
  identity.client.push_back('x');
  EXPECT_THROW(encode_identity(identity), InvalidArgument);
}

TEST(ChannelIdentity, EveryFieldAndTheTokenChangeTheKey) {
  const auto token = JobToken::from_text("secret");
  std::vector<ChannelKey> keys{derive_channel_key(token, some_identity()),
                               derive_channel_key(JobToken::from_text("Secret"), some_identity())};
  const auto add = [&](auto&& change) {
    auto identity = some_identity();
    change(identity);
    keys.push_back(derive_channel_key(token, identity));
  };
  add([](ChannelIdentity& identity) { identity.purpose = "exchange"; });
  add([](ChannelIdentity& identity) { identity.client = "worker 2"; });
  add([](ChannelIdentity& identity) { identity.server = "ps 1"; });
  add([](ChannelIdentity& identity) { std::swap(identity.client, identity.server); });
  add([](ChannelIdentity& identity) { ++identity.number; });
  add([](ChannelIdentity& identity) { ++identity.generation; });
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(keys[i], keys[j]) << i << ", " << j;
  }
  EXPECT_EQ(derive_channel_key(token, some_identity()), keys[0]);
}

}  // namespace
}  // namespace lockstep
