#include "lockstep/runtime/workers/heartbeat_message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace lockstep {
namespace {

const JobToken& heartbeat_token() {
  static const JobToken token = JobToken::from_text("the token of the job");
  return token;
}

HeartbeatMessage full_heartbeat() {
  return {.kind = HeartbeatKind::kLeaving,
          .incarnation = 0x0123456789ABCDEF,
          .sequence = 0xFEDCBA9876543210,
          .sender = 1023,
          .receiver = 5,
          .lost = 0x01020304,
          .reason = LossReason::kCutOff};
}

/// Seals changed fields with a correct tag.
HeartbeatPacket resealed_heartbeat(HeartbeatPacket packet) {
  const size_t fields = packet.size() - std::tuple_size_v<JobToken::Tag>;
  const JobToken::Tag tag = heartbeat_token().tag(std::span(packet).first(fields));
  std::copy(tag.begin(), tag.end(), packet.begin() + static_cast<std::ptrdiff_t>(fields));
  return packet;
}

TEST(HeartbeatMessage, ComesBackOutOfItsPacket) {
  const HeartbeatMessage none;
  const HeartbeatMessage least{.sender = std::numeric_limits<int32_t>::min(),
                               .receiver = std::numeric_limits<int32_t>::max()};
  for (const HeartbeatMessage& message : {full_heartbeat(), none, least}) {
    EXPECT_EQ(open_heartbeat(seal_heartbeat(message, heartbeat_token()), heartbeat_token()), message);
  }
}

TEST(HeartbeatMessage, IsWrittenInLittleEndianOrder) {
  const HeartbeatPacket packet = seal_heartbeat(full_heartbeat(), heartbeat_token());
  const std::vector<uint8_t> fields(packet.begin(), packet.begin() + 36);
  EXPECT_EQ(fields, (std::vector<uint8_t>{'L',  'S',  'H',  'B',                           //
                                          1,    0,                                         // version
                                          1,                                               // leaving
                                          3,                                               // cut off
                                          0xEF, 0xCD, 0xAB, 0x89, 0x67, 0x45, 0x23, 0x01,  // incarnation
                                          0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE,  // sequence
                                          0xFF, 0x03, 0,    0,                             // sender
                                          5,    0,    0,    0,                             // receiver
                                          4,    3,    2,    1}));                          // lost
}

TEST(HeartbeatMessage, IsRefusedWithAnyBitFlipped) {
  const HeartbeatPacket whole = seal_heartbeat(full_heartbeat(), heartbeat_token());
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    HeartbeatPacket flipped = whole;
    flipped[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_FALSE(open_heartbeat(flipped, heartbeat_token())) << "bit " << bit;
  }
}

TEST(HeartbeatMessage, IsRefusedWithAnotherSize) {
  const HeartbeatPacket whole = seal_heartbeat(full_heartbeat(), heartbeat_token());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(open_heartbeat(std::span(whole).first(size), heartbeat_token())) << size << " bytes";
  }
  for (const size_t more : {1, 100, 65000}) {
    std::vector<uint8_t> longer(whole.begin(), whole.end());
    longer.resize(whole.size() + more);
    EXPECT_FALSE(open_heartbeat(longer, heartbeat_token())) << more << " bytes more";
  }
}

TEST(HeartbeatMessage, IsRefusedWithAnotherToken) {
  const HeartbeatPacket packet = seal_heartbeat(full_heartbeat(), JobToken::from_text("another token"));
  EXPECT_FALSE(open_heartbeat(packet, heartbeat_token()));
}

TEST(HeartbeatMessage, IsRefusedWithFieldsThatNobodyWrites) {
  const HeartbeatPacket whole = seal_heartbeat(full_heartbeat(), heartbeat_token());
  ASSERT_TRUE(open_heartbeat(resealed_heartbeat(whole), heartbeat_token()));
  const auto refused = [&](size_t position, uint8_t value) {
    HeartbeatPacket packet = whole;
    packet[position] = value;
    return !open_heartbeat(resealed_heartbeat(packet), heartbeat_token());
  };
  EXPECT_TRUE(refused(0, 'M')) << "magic number";
  EXPECT_TRUE(refused(4, 2)) << "version";
  EXPECT_TRUE(refused(6, 3)) << "kind";
  EXPECT_TRUE(refused(7, 6)) << "reason";
}

}  // namespace
}  // namespace lockstep
