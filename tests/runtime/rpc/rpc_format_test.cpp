#include "lockstep/runtime/rpc/rpc_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const RpcHead kHead{
    .tensors = {{RpcDtype::kFloat32, {2, 3}}, {RpcDtype::kInt64, {}}, {RpcDtype::kUInt8, {0}}},
    .fields = {7, 8, 9}};

TEST(RpcFormat, FrameComesBackAsItWas) {
  const RpcFrame frame{.kind = RpcKind::kError, .head_bytes = 1234, .tensor_bytes = uint64_t{5} << 40};
  EXPECT_EQ(decode_frame(encode_frame(frame)), frame);
}

TEST(RpcFormat, HeadComesBackAsItWas) {
  EXPECT_EQ(decode_head(encode_head(kHead)), kHead);
  EXPECT_EQ(decode_head(encode_head({})), RpcHead{});
}

TEST(RpcFormat, CountsTheBytesOfTensors) {
  EXPECT_EQ(kHead.tensor_bytes(), 2U * 3 * 4 + 8 + 0);
  EXPECT_EQ((RpcTensorShape{RpcDtype::kBFloat16, {5}}.num_bytes()), 10U);
}

TEST(RpcFormat, RefusesSizesThatNoMemoryHas) {
  const int64_t large = int64_t{1} << 40;
  EXPECT_THROW((RpcTensorShape{RpcDtype::kFloat32, {large, large}}.num_bytes()), InvalidArgument);
  EXPECT_THROW((RpcTensorShape{RpcDtype::kFloat64, {std::numeric_limits<int64_t>::max()}}.num_bytes()),
               InvalidArgument);
  // The size is zero in whatever order it is multiplied.
  EXPECT_EQ((RpcTensorShape{RpcDtype::kFloat32, {large, large, 0}}.num_bytes()), 0U);
  const RpcTensorShape half{RpcDtype::kUInt8, {int64_t{1} << 62}};
  EXPECT_THROW((RpcHead{.tensors = {half, half}}.tensor_bytes()), InvalidArgument);
}

TEST(RpcFormat, RefusesFramesOfOthers) {
  const std::string request = "GET / HTTP/1.1\r\nHost";
  ASSERT_EQ(request.size(), std::tuple_size_v<RpcFrameBytes>);
  EXPECT_THROW(decode_frame(std::vector<uint8_t>(request.begin(), request.end())), InvalidArgument);
  const auto changed = [](size_t place, uint8_t value) {
    auto bytes = encode_frame({});
    bytes.at(place) = value;
    return [bytes] { decode_frame(bytes); };
  };
  EXPECT_THAT(changed(4, 2), ThrowsMessage<InvalidArgument>(HasSubstr("version 1, but got 2")));
  EXPECT_THAT(changed(6, 3), ThrowsMessage<InvalidArgument>(HasSubstr("kind 3")));
  EXPECT_THAT(changed(11, 0x80), ThrowsMessage<InvalidArgument>(HasSubstr("67108864 bytes or less")));
  const auto whole = encode_frame({});
  EXPECT_THROW(decode_frame(std::span(whole).first(whole.size() - 1)), InvalidArgument);
}

TEST(RpcFormat, RefusesAHeadThatIsCutOff) {
  const auto whole = encode_head({.tensors = kHead.tensors});
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(decode_head(std::span(whole).first(size)), InvalidArgument) << size;
}

TEST(RpcFormat, RefusesWhatNoTensorIs) {
  const auto with = [](size_t place, uint8_t value) {
    auto bytes = encode_head({.tensors = {{RpcDtype::kFloat32, {2}}}});
    bytes.at(place) = value;
    return [bytes] { decode_head(bytes); };
  };
  EXPECT_THAT(with(4, 7), ThrowsMessage<InvalidArgument>(HasSubstr("dtype, but got 7")));
  EXPECT_THAT(with(5, 65),
              ThrowsMessage<InvalidArgument>(HasSubstr("64 dimensions or less, but got one of 65")));
  EXPECT_THAT(with(13, 0x80), ThrowsMessage<InvalidArgument>(HasSubstr("expected a tensor's size")));
  // More tensors than the bytes can describe.
  EXPECT_THROW(with(1, 1)(), InvalidArgument);
  EXPECT_THAT(with(3, 1), ThrowsMessage<InvalidArgument>(HasSubstr("65536 tensors or less")));
}

TEST(RpcFormat, RefusesToWriteWhatItWouldNotRead) {
  EXPECT_THROW(encode_head({.tensors = std::vector<RpcTensorShape>(65537)}), InvalidArgument);
  EXPECT_THROW(encode_head({.tensors = {{RpcDtype::kFloat32, std::vector<int64_t>(65, 1)}}}),
               InvalidArgument);
  EXPECT_THROW(encode_head({.fields = std::vector<uint8_t>(kMaxRpcHeadBytes)}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
