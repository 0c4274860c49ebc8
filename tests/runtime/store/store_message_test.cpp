#include "lockstep/runtime/store/store_message.h"

#include <gtest/gtest.h>

#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

StoreRequest some_request() {
  return {.id = 7,
          .op = StoreOp::kGet,
          .number = -3,
          .keys = {"worker/1", ""},
          .values = {std::string("a\0b", 3)},
          .unless = {"given up"}};
}

std::span<const uint8_t> without_size(const std::vector<uint8_t>& bytes) {
  return std::span(bytes).subspan(4);
}

TEST(StoreMessage, IsReadAsItWasWritten) {
  const StoreReply reply{.id = 9, .status = StoreStatus::kEnded, .number = 1, .values = {"", "value"}};
  EXPECT_EQ(decode_store_request(without_size(encode(some_request()))), some_request());
  EXPECT_EQ(decode_store_reply(without_size(encode(reply))), reply);
}

TEST(StoreMessage, RefusesEveryTruncationAndWhatFollowsTheEnd) {
  auto bytes = encode(some_request());
  for (size_t size = 0; size + 4 < bytes.size(); ++size)
    EXPECT_THROW(decode_store_request(without_size(bytes).first(size)), InvalidArgument) << size;
  bytes.push_back(0);
  EXPECT_THROW(decode_store_request(without_size(bytes)), InvalidArgument);
}

TEST(StoreMessage, RefusesUnknownRequestsAndCountsOfTextsThatCannotBe) {
  auto bytes = encode(some_request());
  bytes[4 + 8] = 9;  // the op
  EXPECT_THROW(decode_store_request(without_size(bytes)), InvalidArgument);
  bytes = encode(some_request());
  for (int i = 0; i < 4; ++i) bytes[4 + 8 + 1 + 8 + static_cast<size_t>(i)] = 0xff;  // the number of keys
  EXPECT_THROW(decode_store_request(without_size(bytes)), InvalidArgument);
}

TEST(StoreMessage, OfMoreThanTheLimitIsNeitherWrittenNorRead) {
  EXPECT_THROW(encode(StoreRequest{.values = {std::string(kMaxStoreMessageBytes, 'x')}}), InvalidArgument);
  StoreMessageReader reader;
  reader.add(std::vector<uint8_t>{0x01, 0x00, 0x00, 0x01});  // 2^24 + 1
  EXPECT_THROW(reader.next(), InvalidArgument);
}

TEST(StoreMessage, IsCutOutOfAStreamWhereverItIsSplit) {
  const auto first = encode(some_request());
  const auto second = encode(StoreRequest{.id = 8});
  auto stream = first;
  stream.insert(stream.end(), second.begin(), second.end());
  for (size_t split = 0; split <= stream.size(); ++split) {
    StoreMessageReader reader;
    std::vector<StoreRequest> found;
    const auto take = [&] {
      while (const auto message = reader.next()) found.push_back(decode_store_request(*message));
    };
    reader.add(std::span(stream).first(split));
    take();
    reader.add(std::span(stream).subspan(split));
    take();
    EXPECT_EQ(found, (std::vector<StoreRequest>{some_request(), {.id = 8}})) << split;
  }
}

}  // namespace
}  // namespace lockstep
