#include "lockstep/runtime/base/net/record_cipher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using CipherBytes = std::vector<uint8_t>;
using CipherDirection = RecordCipher::Direction;

struct SealedText {
  CipherBytes text;
  std::array<uint8_t, RecordCipher::kTagBytes> tag{};
  bool operator==(const SealedText&) const = default;
};

constexpr RecordCipher::Nonce kAnyNonce{1, 2, 3};

/// Processes the text in pieces of these sizes, and the rest at once.
CipherBytes process_in_pieces(RecordCipher& cipher, std::span<const uint8_t> text,
                              const std::vector<size_t>& pieces) {
  CipherBytes result(text.size());
  size_t begin = 0;
  for (const size_t piece : pieces) {
    const size_t size = std::min(piece, text.size() - begin);
    cipher.process(text.subspan(begin, size), result.data() + begin);
    begin += size;
  }
  cipher.process(text.subspan(begin), result.data() + begin);
  return result;
}

SealedText seal_text(RecordCipher& cipher, std::span<const uint8_t> header, std::span<const uint8_t> text,
                     const std::vector<size_t>& pieces = {}, const RecordCipher::Nonce& nonce = kAnyNonce) {
  SealedText sealed;
  cipher.begin(nonce, header);
  sealed.text = process_in_pieces(cipher, text, pieces);
  cipher.write_tag(sealed.tag);
  return sealed;
}

std::optional<CipherBytes> open_text(RecordCipher& cipher, std::span<const uint8_t> header,
                                     const SealedText& sealed, const std::vector<size_t>& pieces = {}) {
  cipher.begin(kAnyNonce, header);
  auto text = process_in_pieces(cipher, sealed.text, pieces);
  if (!cipher.check_tag(sealed.tag)) return std::nullopt;
  return text;
}

CipherBytes random_bytes(std::mt19937& random, size_t count) {
  CipherBytes bytes(count);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<uint8_t>(random()); });
  return bytes;
}

using MakeCipher = std::unique_ptr<RecordCipher> (*)(CipherDirection);

class RecordCipherTest : public ::testing::TestWithParam<std::pair<std::string, MakeCipher>> {
 protected:
  void SetUp() override {
    encrypts_ = GetParam().second(CipherDirection::kEncrypt);
    decrypts_ = GetParam().second(CipherDirection::kDecrypt);
    if (!encrypts_)
      GTEST_SKIP() << "Lockstep was built without intel-ipsec-mb, or this processor has no VAES";
  }

  std::unique_ptr<RecordCipher> encrypts_, decrypts_;
};

// Test case 4 of "The Galois/Counter Mode of Operation (GCM)" by McGrew and Viega.
TEST_P(RecordCipherTest, GivesTheTestVectorOfGcm) {
  constexpr RecordCipher::Key kKey{0xfe, 0xff, 0xe9, 0x92, 0x86, 0x65, 0x73, 0x1c,
                                   0x6d, 0x6a, 0x8f, 0x94, 0x67, 0x30, 0x83, 0x08};
  constexpr RecordCipher::Nonce kNonce{0xca, 0xfe, 0xba, 0xbe, 0xfa, 0xce,
                                       0xdb, 0xad, 0xde, 0xca, 0xf8, 0x88};
  const CipherBytes header{0xfe, 0xed, 0xfa, 0xce, 0xde, 0xad, 0xbe, 0xef, 0xfe, 0xed,
                           0xfa, 0xce, 0xde, 0xad, 0xbe, 0xef, 0xab, 0xad, 0xda, 0xd2};
  const CipherBytes text{0xd9, 0x31, 0x32, 0x25, 0xf8, 0x84, 0x06, 0xe5, 0xa5, 0x59, 0x09, 0xc5,
                         0xaf, 0xf5, 0x26, 0x9a, 0x86, 0xa7, 0xa9, 0x53, 0x15, 0x34, 0xf7, 0xda,
                         0x2e, 0x4c, 0x30, 0x3d, 0x8a, 0x31, 0x8a, 0x72, 0x1c, 0x3c, 0x0c, 0x95,
                         0x95, 0x68, 0x09, 0x53, 0x2f, 0xcf, 0x0e, 0x24, 0x49, 0xa6, 0xb5, 0x25,
                         0xb1, 0x6a, 0xed, 0xf5, 0xaa, 0x0d, 0xe6, 0x57, 0xba, 0x63, 0x7b, 0x39};
  const CipherBytes expected{0x42, 0x83, 0x1e, 0xc2, 0x21, 0x77, 0x74, 0x24, 0x4b, 0x72, 0x21, 0xb7,
                             0x84, 0xd0, 0xd4, 0x9c, 0xe3, 0xaa, 0x21, 0x2f, 0x2c, 0x02, 0xa4, 0xe0,
                             0x35, 0xc1, 0x7e, 0x23, 0x29, 0xac, 0xa1, 0x2e, 0x21, 0xd5, 0x14, 0xb2,
                             0x54, 0x66, 0x93, 0x1c, 0x7d, 0x8f, 0x6a, 0x5a, 0xac, 0x84, 0xaa, 0x05,
                             0x1b, 0xa3, 0x0b, 0x39, 0x6a, 0x0a, 0xac, 0x97, 0x3d, 0x58, 0xe0, 0x91};
  constexpr std::array<uint8_t, 16> kTag{0x5b, 0xc9, 0x4f, 0xbc, 0x32, 0x21, 0xa5, 0xdb,
                                         0x94, 0xfa, 0xe9, 0x5a, 0xe7, 0x12, 0x1a, 0x47};
  encrypts_->set_key(kKey);
  EXPECT_EQ(seal_text(*encrypts_, header, text, {}, kNonce), (SealedText{expected, kTag}));
}

TEST_P(RecordCipherTest, GivesTheBytesOfOpenSslForTextsOfAllSizesInPieces) {
  const auto openssl = make_openssl_cipher(CipherDirection::kEncrypt);
  std::mt19937 random(1);
  for (int round = 0; round < 400; ++round) {
    RecordCipher::Key key{};
    std::generate(key.begin(), key.end(), [&] { return static_cast<uint8_t>(random()); });
    const size_t size = round < 300 ? static_cast<size_t>(round) : random() % 20'000;
    const auto header = random_bytes(random, random() % 40);
    const auto text = random_bytes(random, size);
    const std::vector<size_t> pieces{random() % 20, 0, random() % 300, random() % 5'000};
    openssl->set_key(key);
    encrypts_->set_key(key);
    decrypts_->set_key(key);
    const auto sealed = seal_text(*encrypts_, header, text, pieces);
    ASSERT_EQ(sealed, seal_text(*openssl, header, text)) << size << " bytes";
    ASSERT_EQ(open_text(*decrypts_, header, sealed, {random() % 20, random() % 300}), text)
        << size << " bytes";
  }
}

TEST_P(RecordCipherTest, WorksInPlace) {
  const CipherBytes header{1, 2};
  std::mt19937 random(2);
  for (const size_t size : {1, 15, 16, 17, 255, 256, 1'000, 16'384}) {
    const auto text = random_bytes(random, size);
    encrypts_->set_key({});
    decrypts_->set_key({});
    const auto expected = seal_text(*encrypts_, header, text);
    SealedText sealed{text, {}};
    encrypts_->begin(kAnyNonce, header);
    encrypts_->process(sealed.text, sealed.text.data());
    encrypts_->write_tag(sealed.tag);
    ASSERT_EQ(sealed, expected) << size << " bytes";
    decrypts_->begin(kAnyNonce, header);
    decrypts_->process(sealed.text, sealed.text.data());
    EXPECT_TRUE(decrypts_->check_tag(sealed.tag));
    EXPECT_EQ(sealed.text, text) << size << " bytes";
  }
}

TEST_P(RecordCipherTest, RefusesAnyChangedBit) {
  const CipherBytes header{1, 2, 3};
  const CipherBytes text(35, 7);
  encrypts_->set_key({});
  decrypts_->set_key({});
  const auto sealed = seal_text(*encrypts_, header, text);
  ASSERT_EQ(open_text(*decrypts_, header, sealed), text);
  const auto changed = [](auto bytes, size_t bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    return bytes;
  };
  for (size_t bit = 0; bit < 8 * text.size(); ++bit)
    EXPECT_FALSE(open_text(*decrypts_, header, {changed(sealed.text, bit), sealed.tag})) << "bit " << bit;
  for (size_t bit = 0; bit < 8 * sealed.tag.size(); ++bit)
    EXPECT_FALSE(open_text(*decrypts_, header, {sealed.text, changed(sealed.tag, bit)}))
        << "tag, bit " << bit;
  for (size_t bit = 0; bit < 8 * header.size(); ++bit)
    EXPECT_FALSE(open_text(*decrypts_, changed(header, bit), sealed)) << "header, bit " << bit;
}

INSTANTIATE_TEST_SUITE_P(Ciphers, RecordCipherTest,
                         ::testing::Values(std::pair{"OpenSsl", &make_openssl_cipher},
                                           std::pair{"Vector", &make_vector_cipher}),
                         [](const auto& info) { return info.param.first; });

TEST(MakeRecordCipher, GivesTheVectorCipherIfThereIsOne) {
  const auto expected = make_vector_cipher(CipherDirection::kEncrypt);
  const auto cipher = make_record_cipher(CipherDirection::kEncrypt);
  ASSERT_TRUE(cipher);
  if (!expected) GTEST_SKIP() << "Lockstep was built without intel-ipsec-mb, or this processor has no VAES";
  EXPECT_EQ(typeid(*cipher), typeid(*expected));
}

}  // namespace
}  // namespace lockstep
