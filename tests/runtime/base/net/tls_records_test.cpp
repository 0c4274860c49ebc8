#include "lockstep/runtime/base/net/tls_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <vector>

#include "lockstep/tests/support/socket_pair.h"

namespace lockstep {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes bytes_of_digits(std::string_view digits) {
  Bytes bytes;
  const auto value = [](char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; };
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(value(digits[i]) * 16 + value(digits[i + 1])));
  return bytes;
}

TrafficSecret traffic_secret_of(std::string_view digits) {
  const auto bytes = bytes_of_digits(digits);
  TrafficSecret secret{};
  std::copy_n(bytes.begin(), secret.size(), secret.begin());
  return secret;
}

/// The bytes 0, 1, 2, ...
Bytes counting_bytes(size_t count) {
  Bytes bytes(count);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return bytes;
}

Bytes sealed_record(TlsSealer& sealer, const std::vector<std::span<const uint8_t>>& parts, size_t begin = 0) {
  Bytes record(TlsRecord::kMaxBytes);
  record.resize(sealer.seal(parts, begin, record) + TlsRecord::kOverheadBytes);
  return record;
}

std::optional<Bytes> opened_record(TlsOpener& opener, const Bytes& record) {
  Bytes content(TlsOpener::content_size(record));
  const auto size = opener.open(record, content.data());
  if (!size) return std::nullopt;
  content.resize(*size);
  return content;
}

/// A record with any type, as a peer that knows the key could send it.
Bytes record_of_type(TrafficKey& key, uint8_t type, const Bytes& content) {
  Bytes record{23, 3, 3, 0, static_cast<uint8_t>(content.size() + 17)};
  auto& cipher = key.begin_record(record);
  record.resize(content.size() + TlsRecord::kOverheadBytes);
  cipher.process(content, record.data() + 5);
  cipher.process({&type, 1}, record.data() + 5 + content.size());
  cipher.write_tag(std::span(record).last<TlsRecord::kTagBytes>());
  return record;
}

// From the trace of a handshake in RFC 8448, section 3.
constexpr std::string_view kRfcClientSecret =
    "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5";
constexpr std::string_view kRfcClientRecord =
    "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b62974e1f"
    "5a6292"
    "a2977014bd1e3deae63aeebb21694915e4";

TEST(TlsSealer, WritesTheRecordOfRfc8448) {
  TlsSealer sealer(traffic_secret_of(kRfcClientSecret));
  const auto content = counting_bytes(50);
  EXPECT_EQ(sealed_record(sealer, {content}), bytes_of_digits(kRfcClientRecord));
}

TEST(TlsOpener, ReadsTheRecordOfRfc8448) {
  TlsOpener opener(traffic_secret_of(kRfcClientSecret));
  EXPECT_EQ(opened_record(opener, bytes_of_digits(kRfcClientRecord)), counting_bytes(50));
}

TEST(TlsSealer, WritesThePartsAsIfTheyWereOne) {
  const auto content = counting_bytes(1000);
  const std::span<const uint8_t> all(content);
  TlsSealer whole(TrafficSecret{});
  TlsSealer in_parts(TrafficSecret{});
  EXPECT_EQ(sealed_record(in_parts, {all.first(7), {}, all.subspan(7, 100), all.subspan(107)}, 30),
            sealed_record(whole, {all.subspan(30)}));
}

TEST(TlsSealer, EndsARecordWhereItIsFull) {
  const auto content = counting_bytes(TlsRecord::kMaxContentBytes + 100);
  const std::span<const uint8_t> all(content);
  TlsSealer sealer(TrafficSecret{});
  TlsOpener opener(TrafficSecret{});
  const auto first = sealed_record(sealer, {all.first(5), all.subspan(5)});
  EXPECT_EQ(first.size(), TlsRecord::kMaxBytes);
  EXPECT_EQ(TlsOpener::record_size(first), first.size());
  const auto second = sealed_record(sealer, {all.first(5), all.subspan(5)}, TlsRecord::kMaxContentBytes);
  auto received = opened_record(opener, first).value();
  const auto rest = opened_record(opener, second).value();
  received.insert(received.end(), rest.begin(), rest.end());
  EXPECT_EQ(received, content);
}

TEST(TlsOpener, DecryptsInPlace) {
  TlsSealer sealer(TrafficSecret{});
  TlsOpener opener(TrafficSecret{});
  const auto content = counting_bytes(300);
  auto record = sealed_record(sealer, {content});
  ASSERT_EQ(opener.open(record, record.data() + TlsRecord::kHeaderBytes), content.size());
  EXPECT_TRUE(std::equal(content.begin(), content.end(), record.begin() + TlsRecord::kHeaderBytes));
}

TEST(TlsOpener, RefusesARecordInWhichAnyBitWasChanged) {
  TlsSealer sealer(TrafficSecret{});
  const auto content = counting_bytes(40);
  const auto record = sealed_record(sealer, {content});
  for (size_t i = 0; i < 8 * record.size(); ++i) {
    auto changed = record;
    changed[i / 8] ^= static_cast<uint8_t>(1 << (i % 8));
    TlsOpener opener(TrafficSecret{});
    EXPECT_EQ(code_of([&] { opened_record(opener, changed); }), std::errc::bad_message) << "bit " << i;
  }
}

TEST(TlsOpener, RefusesRepeatedAndMissingRecords) {
  TlsSealer sealer(TrafficSecret{});
  const auto content = counting_bytes(40);
  const auto first = sealed_record(sealer, {content});
  const auto second = sealed_record(sealer, {content});
  TlsOpener repeats(TrafficSecret{});
  opened_record(repeats, first);
  EXPECT_EQ(code_of([&] { opened_record(repeats, first); }), std::errc::bad_message);
  TlsOpener misses(TrafficSecret{});
  EXPECT_EQ(code_of([&] { opened_record(misses, second); }), std::errc::bad_message);
}

TEST(TlsOpener, TellsTheSizeOfARecordOnceItsHeaderHasArrived) {
  EXPECT_EQ(TlsOpener::record_size({}), 0);
  EXPECT_EQ(TlsOpener::record_size(Bytes{23, 3, 3, 1}), 0);
  EXPECT_EQ(TlsOpener::record_size(Bytes{23, 3, 3, 1, 2}), 5 + 258);
  EXPECT_EQ(TlsOpener::record_size(Bytes{23, 3, 3, 0, 17}), TlsRecord::kOverheadBytes);
}

TEST(TlsOpener, RefusesBytesWithWhichNoRecordBegins) {
  for (const auto& header : {Bytes{22, 3, 3, 1, 2}, Bytes{0, 0, 0, 0, 0}, Bytes{23, 3, 3, 0, 16},
                             Bytes{23, 3, 3, 0x40, 0x12}, Bytes{23, 3, 3, 0xff, 0xff}})
    EXPECT_EQ(code_of([&] { TlsOpener::record_size(header); }), std::errc::bad_message);
}

TEST(TlsOpener, TakesAnotherKeyWhenThePeerAnnouncesIt) {
  TlsSealer sealer(TrafficSecret{});
  TlsOpener opener(TrafficSecret{});
  const auto content = counting_bytes(40);
  const auto before = sealed_record(sealer, {content});
  Bytes update(TlsRecord::kMaxBytes);
  update.resize(sealer.seal_key_update(update));
  EXPECT_EQ(sealer.num_records(), 0);
  const auto after = sealed_record(sealer, {content});
  TlsSealer same_number(TrafficSecret{});
  EXPECT_NE(after, sealed_record(same_number, {content}));

  EXPECT_EQ(opened_record(opener, before), content);
  EXPECT_EQ(opened_record(opener, update), Bytes{});
  EXPECT_EQ(opened_record(opener, after), content);
}

TEST(TlsOpener, TellsTheEndOfTheConnectionFromOtherAlerts) {
  TrafficKey key({}, TrafficKey::Direction::kEncrypt);
  TlsOpener opener(TrafficSecret{});
  EXPECT_EQ(opened_record(opener, record_of_type(key, 21, {1, 0})), std::nullopt);
  EXPECT_EQ(code_of([&] {
              opened_record(opener, record_of_type(key, 21, {2, 20}));
            }),
            std::errc::bad_message);
}

TEST(TlsOpener, RefusesOtherTypesAndPaddedContents) {
  // A KeyUpdate that asks for one in return, a ticket, a type that does not exist, and padding.
  const std::vector<std::pair<uint8_t, Bytes>> contents{
      {22, {24, 0, 0, 1, 1}}, {22, {4, 0, 0, 1, 0}}, {99, {1, 2, 3}}, {0, {1, 2, 23}}};
  for (const auto& [type, content] : contents) {
    TrafficKey key({}, TrafficKey::Direction::kEncrypt);
    TlsOpener opener(TrafficSecret{});
    const auto record = record_of_type(key, type, content);
    EXPECT_EQ(code_of([&] { opened_record(opener, record); }), std::errc::bad_message) << int{type};
  }
}

}  // namespace
}  // namespace lockstep
