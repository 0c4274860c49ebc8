#include "lockstep/runtime/base/net/aes_gcm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep {
namespace {

using GcmBytes = std::vector<uint8_t>;

GcmBytes gcm_bytes(const std::string& digits) {
  GcmBytes bytes;
  for (size_t i = 0; i < digits.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

template <class Array>
Array gcm_array(const std::string& digits) {
  Array array{};
  const GcmBytes bytes = gcm_bytes(digits);
  EXPECT_EQ(bytes.size(), array.size());
  std::copy(bytes.begin(), bytes.end(), array.begin());
  return array;
}

struct GcmCase {
  std::string key;
  std::string nonce;
  std::string header;
  std::string text;
  std::string sealed;
};

/// Test cases 13 to 16 of "The Galois/Counter Mode of Operation (GCM)" by McGrew and Viega, appendix B. The
/// outputs are those of AESGCM in Python's cryptography.
std::vector<GcmCase> gcm_cases() {
  const std::string zeros(64, '0');
  const std::string key = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";
  const std::string nonce = "cafebabefacedbaddecaf888";
  const std::string text =
      "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
      "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39";
  const std::string encrypted =
      "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
      "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662";
  return {{zeros, zeros.substr(0, 24), "", "", "530f8afbc74536b9a963b4f1c4cb738b"},
          {zeros, zeros.substr(0, 24), "", zeros.substr(0, 32),
           "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"},
          {key, nonce, "", text + "1aafd255", encrypted + "898015adb094dac5d93471bdec1a502270e3cc6c"},
          {key, nonce, "feedfacedeadbeeffeedfacedeadbeefabaddad2", text,
           encrypted + "76fc6ece0f4e1768cddf8853bb2d551b"}};
}

TEST(AesGcm, SealsAndOpensTheTestCasesOfItsSpecification) {
  for (const GcmCase& each : gcm_cases()) {
    AesGcm cipher(gcm_array<AesGcm::Key>(each.key));
    const auto nonce = gcm_array<AesGcm::Nonce>(each.nonce);
    const GcmBytes header = gcm_bytes(each.header);
    // Twice, since the context is used again.
    for (int time = 0; time < 2; ++time) {
      EXPECT_EQ(cipher.seal(nonce, header, gcm_bytes(each.text)), gcm_bytes(each.sealed));
      EXPECT_EQ(cipher.open(nonce, header, gcm_bytes(each.sealed)), gcm_bytes(each.text));
    }
  }
}

TEST(AesGcm, OpensNothingElse) {
  const GcmCase whole = gcm_cases().back();
  AesGcm cipher(gcm_array<AesGcm::Key>(whole.key));
  const auto nonce = gcm_array<AesGcm::Nonce>(whole.nonce);
  const GcmBytes header = gcm_bytes(whole.header);
  const GcmBytes sealed = gcm_bytes(whole.sealed);
  const auto with_bit_flipped = [](auto bytes, size_t bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    return bytes;
  };
  for (size_t bit = 0; bit < sealed.size() * 8; ++bit)
    EXPECT_FALSE(cipher.open(nonce, header, with_bit_flipped(sealed, bit))) << "bit " << bit;
  for (size_t bit = 0; bit < header.size() * 8; ++bit)
    EXPECT_FALSE(cipher.open(nonce, with_bit_flipped(header, bit), sealed)) << "header, bit " << bit;
  for (size_t bit = 0; bit < nonce.size() * 8; ++bit)
    EXPECT_FALSE(cipher.open(with_bit_flipped(nonce, bit), header, sealed)) << "nonce, bit " << bit;
  for (size_t bit = 0; bit < 256; ++bit) {
    AesGcm other(with_bit_flipped(gcm_array<AesGcm::Key>(whole.key), bit));
    EXPECT_FALSE(other.open(nonce, header, sealed)) << "key, bit " << bit;
  }
  for (size_t size = 0; size < sealed.size(); ++size)
    EXPECT_FALSE(cipher.open(nonce, header, std::span(sealed).first(size))) << size << " bytes";
  GcmBytes longer = sealed;
  longer.push_back(0);
  EXPECT_FALSE(cipher.open(nonce, header, longer));
  EXPECT_FALSE(cipher.open(nonce, std::span(header).first(header.size() - 1), sealed));
  EXPECT_EQ(cipher.open(nonce, header, sealed), gcm_bytes(whole.text)) << "after all these, it still opens";
}

}  // namespace
}  // namespace lockstep
