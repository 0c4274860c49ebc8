#include "lockstep/runtime/workers/heartbeat_message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

const JobToken& heartbeat_token() {
  static const JobToken token = JobToken::from_text("the token of the job");
  return token;
}

HeartbeatSender heartbeat_sender() {
  return {.rank = 1023,
          .incarnation = 0x0123456789ABCDEF,
          .session = "the sender's session",
          .hub_session = "the hub's session"};
}

HeartbeatSeal heartbeat_seal(const HeartbeatSender& sender = heartbeat_sender()) {
  return {heartbeat_token(), sender};
}

HeartbeatMessage full_heartbeat() {
  return {.kind = HeartbeatKind::kLeaving,
          .sequence = 0xFEDCBA9876543210,
          .sender = 1023,
          .receiver = 5,
          .lost = 0x01020304,
          .reason = LossReason::kCutOff};
}

HeartbeatPacket sealed_heartbeat() {
  return heartbeat_seal().seal(full_heartbeat());
}

TEST(HeartbeatMessage, ComesBackOutOfItsPacket) {
  const HeartbeatMessage none{.sender = 1023};
  const HeartbeatMessage most{.sequence = std::numeric_limits<uint64_t>::max(),
                              .sender = 1023,
                              .receiver = std::numeric_limits<int32_t>::min(),
                              .lost = std::numeric_limits<int32_t>::max()};
  HeartbeatSeal sender = heartbeat_seal();
  HeartbeatSeal receiver = heartbeat_seal();
  for (const HeartbeatMessage& message : {none, full_heartbeat(), most}) {
    const HeartbeatPacket packet = sender.seal(message);
    EXPECT_EQ(receiver.open(packet), message);
    EXPECT_EQ(claimed_heartbeat_sender(packet), 1023);
  }
}

TEST(HeartbeatMessage, IsSealedAsPythonSealsIt) {
  // Python's cryptography: HKDF(SHA256(), 32, b"lockstep heartbeat 2", info), where info has the five values
  // of "heartbeat", the rank, the incarnation, the hub's session and the sender's; and AESGCM.encrypt() with
  // bytes 6 to 17 of the header as nonce.
  const HeartbeatPacket expected = {'L',  'S',  'H',  'B',                                       //
                                    2,    0,                                                     // version
                                    0xFF, 0x03, 0,    0,                                         // sender
                                    0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE,              // sequence
                                    0x0F, 0x1C, 0x6E, 0x66, 0x91, 0xAC, 0x80, 0x3A, 0x3D, 0xB6,  // fields
                                    0x61, 0xD5, 0xFE, 0xD9, 0x5C, 0x7B, 0x2F, 0x52,              // tag
                                    0x16, 0x4B, 0x05, 0x56, 0x36, 0xB2, 0xE8, 0x02};
  EXPECT_EQ(sealed_heartbeat(), expected);
}

TEST(HeartbeatMessage, IsRefusedWithAnyBitFlipped) {
  const HeartbeatPacket whole = sealed_heartbeat();
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    HeartbeatPacket flipped = whole;
    flipped[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_FALSE(heartbeat_seal().open(flipped)) << "bit " << bit;
  }
}

TEST(HeartbeatMessage, IsRefusedWithAnotherSize) {
  const HeartbeatPacket whole = sealed_heartbeat();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(heartbeat_seal().open(std::span(whole).first(size))) << size << " bytes";
    EXPECT_FALSE(claimed_heartbeat_sender(std::span(whole).first(size))) << size << " bytes";
  }
  for (const size_t more : {1, 100, 65000}) {
    std::vector<uint8_t> longer(whole.begin(), whole.end());
    longer.resize(whole.size() + more);
    EXPECT_FALSE(heartbeat_seal().open(longer)) << more << " bytes more";
    EXPECT_FALSE(claimed_heartbeat_sender(longer)) << more << " bytes more";
  }
}

TEST(HeartbeatMessage, IsRefusedWithAnotherToken) {
  HeartbeatSeal other(JobToken::from_text("another token"), heartbeat_sender());
  EXPECT_FALSE(other.open(sealed_heartbeat()));
}

TEST(HeartbeatMessage, IsRefusedOfAnotherSender) {
  const auto opens = [](auto change) {
    HeartbeatSender sender = heartbeat_sender();
    change(sender);
    return heartbeat_seal(sender).open(sealed_heartbeat()).has_value();
  };
  EXPECT_TRUE(opens([](HeartbeatSender&) {}));
  EXPECT_FALSE(opens([](HeartbeatSender& sender) { sender.rank = 1022; }));
  EXPECT_FALSE(opens([](HeartbeatSender& sender) { ++sender.incarnation; }));
  EXPECT_FALSE(opens([](HeartbeatSender& sender) { sender.session += "2"; }));
  EXPECT_FALSE(opens([](HeartbeatSender& sender) { sender.hub_session += "2"; }));
  EXPECT_FALSE(opens([](HeartbeatSender& sender) { std::swap(sender.session, sender.hub_session); }));
}

TEST(HeartbeatMessage, IsNotSealedWithASequenceThatWasUsed) {
  HeartbeatSeal seal = heartbeat_seal();
  HeartbeatMessage message = full_heartbeat();
  seal.seal(message);
  EXPECT_THROW(seal.seal(message), InvalidArgument);
  --message.sequence;
  EXPECT_THROW(seal.seal(message), InvalidArgument);
  message.sequence += 2;
  EXPECT_NO_THROW(seal.seal(message));
}

TEST(HeartbeatMessage, IsRefusedWithFieldsThatNobodyWrites) {
  // Another program that knows the key.
  AesGcm cipher(derive_heartbeat_key(heartbeat_token(), heartbeat_sender()));
  const HeartbeatPacket whole = sealed_heartbeat();
  const std::vector<uint8_t> fields = {1, 3, 5, 0, 0, 0, 4, 3, 2, 1};
  const auto opened = [&](size_t position, uint8_t value) {
    std::vector<uint8_t> header(whole.begin(), whole.begin() + kHeartbeatHeaderBytes);
    std::vector<uint8_t> text = fields;
    (position < header.size() ? header[position] : text[position - header.size()]) = value;
    AesGcm::Nonce nonce{};
    std::copy(header.begin() + 6, header.end(), nonce.begin());
    std::vector<uint8_t> packet = header;
    std::ranges::copy(cipher.seal(nonce, header, text), std::back_inserter(packet));
    return heartbeat_seal().open(packet);
  };
  EXPECT_EQ(opened(0, 'L'), full_heartbeat()) << "no change";
  EXPECT_FALSE(opened(0, 'M')) << "magic number";
  EXPECT_FALSE(opened(4, 3)) << "version";
  EXPECT_FALSE(opened(6, 0xFE)) << "sender";
  EXPECT_FALSE(opened(18, 3)) << "kind";
  EXPECT_FALSE(opened(19, 6)) << "reason";
}

}  // namespace
}  // namespace lockstep
